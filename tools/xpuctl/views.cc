#include "tools/xpuctl/views.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "proto/base/text.h"
#include "tools/xpuctl/columns.h"
#include "tools/xpuctl/reasons.h"

namespace xpud::xpuctl {
namespace {

std::string Line(const std::string& what, const std::string& value) {
  return absl::StrFormat("%-11s %s\n", what, PrintableText(value));
}

std::string Kernels(const v1::Device& device) {
  std::string text = absl::StrCat(
      CountCell(device.kernels_compiled()), " compiled in ", Duration(device.kernel_compile_ns()), ", ",
      CountCell(device.kernel_disk_cache_hits()), " loaded from the disk cache, ",
      CountCell(device.kernel_cache_hits()), " cache hits, ", CountCell(device.launches()), " launches");
  if (device.kernel_shared_hits() > 0)
    absl::StrAppend(&text, ", ", CountCell(device.kernel_shared_hits()), " shared with other devices");
  if (device.kernel_compiles_failed() > 0)
    absl::StrAppend(&text, ", ", CountCell(device.kernel_compiles_failed()), " could not be compiled");
  return text;
}

std::string Executor(const v1::Device& device) {
  const std::string which = device.has_executor_pid() ? absl::StrCat("pid ", device.executor_pid())
                                                      : absl::StrCat("none, ", kBeingReplaced);
  const std::string batch =
      device.has_batch_executor_pid() ? absl::StrCat(" (batch: ", device.batch_executor_pid(), ")") : "";
  return absl::StrCat(which, batch, ", ", device.executors_replaced(), " lost and replaced, ",
                      CountCell(device.launches_replayed()), " launches replayed");
}

// Returns a line whose value may be unmeasured.
std::string Measured(const char* what, bool has, const std::string& value, const char* why, bool wide) {
  return Line(what, has ? value : wide ? absl::StrCat("-  (", why, ")") : "-");
}

std::string Compiler(const v1::Compiler& compiler) {
  std::string text =
      compiler.has_pid() ? absl::StrCat("pid ", compiler.pid()) : std::string("none, it is being replaced");
  absl::StrAppend(&text, ", ", CountCell(compiler.compiled()), " loop kernels compiled in ",
                  Duration(compiler.compile_ns()));
  const auto add = [&](uint64_t count, const char* what) {
    if (count > 0) absl::StrAppend(&text, ", ", CountCell(count), " ", what);
  };
  add(compiler.failed(), "could not be compiled");
  add(compiler.running(), "being compiled");
  add(compiler.overdue(), "of them for long");
  add(compiler.waiting(), "waiting");
  absl::StrAppend(&text, ", ", compiler.replaced(), " lost and replaced");
  return text;
}

std::string DaemonLines(const v1::GetStatusResponse& status, bool wide) {
  const v1::Daemon& daemon = status.daemon();
  std::string text;
  text +=
      Line("daemon",
           absl::StrCat("xpud ", daemon.version(), ", pid ", daemon.pid(), ", user ", UserName(daemon.uid()),
                        daemon.private_daemon() ? ", private (ends after its last client)" : ""));
  text += Line("socket", daemon.socket());
  text += Line("up", Duration(daemon.uptime_ns()));
  text += Measured("resident", daemon.has_resident_bytes(), SizeCell(daemon.resident_bytes()), kNotReported,
                   wide);
  text += Measured("cpu time", daemon.has_cpu_ns(), Duration(daemon.cpu_ns()), kNotReported, wide);
  text += Line("sessions",
               absl::StrCat(status.sessions_size(), " open, ", daemon.sessions_opened(), " since the start, ",
                            daemon.sessions_closed_for_fault(), " closed for protocol errors"));
  if (daemon.has_compiler()) text += Line("compiler", Compiler(daemon.compiler()));
  if (daemon.drained()) text += Line("drained", "new sessions are refused until `xpuctl drain off`");
  return text;
}

std::string Temperature(const v1::Device& device) {
  return device.has_temperature_celsius() ? absl::StrFormat("%.0f C", device.temperature_celsius()) : "-";
}
std::string Power(const v1::Device& device) {
  return device.has_power_watts() ? absl::StrFormat("%.1f W", device.power_watts()) : "-";
}
std::string Frequency(const v1::Device& device) {
  return device.has_frequency_mhz() ? absl::StrFormat("%.0f MHz", device.frequency_mhz()) : "-";
}
std::string Free(const v1::Device& device) {
  return device.has_memory_free_bytes() ? SizeCell(device.memory_free_bytes()) : "-";
}
std::string Throttled(const v1::Device& device) {
  if (!device.has_throttle_reasons()) return "-";
  return device.throttle_reasons().empty() ? "no" : device.throttle_reasons();
}

bool HasSensors(const v1::Device& device) {
  return device.has_temperature_celsius() || device.has_power_watts() || device.has_frequency_mhz() ||
         device.has_memory_free_bytes();
}

// Formats the available sensors.
std::string Sensors(const v1::Device& device) {
  std::string text;
  const auto add = [&](bool has, const std::string& value) {
    if (has) absl::StrAppend(&text, text.empty() ? "" : ", ", value);
  };
  add(device.has_temperature_celsius(), Temperature(device));
  add(device.has_power_watts(), Power(device));
  add(device.has_frequency_mhz(), Frequency(device));
  add(!device.throttle_reasons().empty(), "throttled by " + device.throttle_reasons());
  add(device.has_memory_free_bytes(), Free(device) + " of the device's memory free");
  return text;
}

std::string DeviceLines(const v1::Device& device, bool wide) {
  std::string text =
      Line(absl::StrCat("device ", device.index()),
           absl::StrCat(device.name(), " (", device.kind(), ", ", device.compute_units(), " units), ",
                        SizeCell(device.memory_used_bytes()), " of ", SizeCell(device.memory_total_bytes()),
                        " used, ", CountCell(device.commands_completed()), " commands, busy ",
                        Duration(device.busy_ns())));
  if (wide) {
    text += Line("  driver", device.driver());
    if (!device.pci_address().empty()) text += Line("  PCI", device.pci_address());
    text += Line("  pool", absl::StrCat(SizeCell(device.pool_bytes()), ", at most ",
                                        SizeCell(device.pool_peak_bytes()), " so far"));
  }
  text += Measured("  sensors", HasSensors(device), Sensors(device), kNoSensors, wide);
  if (wide) {
    for (const v1::Unmeasured& unmeasured : device.unmeasured())
      text += Line("", absl::StrCat(unmeasured.field(), ": -  (", unmeasured.why(), ")"));
  }
  text += Measured("  kernels", device.has_kernels_compiled(), Kernels(device), kNoKernels, wide);
  return text + Measured("  executor", device.has_executors_replaced(), Executor(device), kNoExecutor, wide);
}

constexpr Column<v1::Device> kDeviceColumns[] = {
    {">INDEX", [](const v1::Device& device) { return absl::StrCat(device.index()); }},
    {"NAME", [](const v1::Device& device) { return device.name(); }},
    {"KIND", [](const v1::Device& device) { return device.kind(); }},
    {"VENDOR", [](const v1::Device& device) { return device.vendor(); }},
    {"DRIVER", [](const v1::Device& device) { return device.driver(); }},
    {">UNITS", [](const v1::Device& device) { return absl::StrCat(device.compute_units()); }},
    {">MEMORY", [](const v1::Device& device) { return SizeCell(device.memory_total_bytes()); }},
    {">USED", [](const v1::Device& device) { return SizeCell(device.memory_used_bytes()); }},
    {">POOL", [](const v1::Device& device) { return SizeCell(device.pool_bytes()); }},
    {">BUSY", [](const v1::Device& device) { return Duration(device.busy_ns()); }},
    {">TEMP", Temperature},
    {">POWER", Power},
    {">CLOCK", Frequency},
    {">COMMANDS", [](const v1::Device& device) { return CountCell(device.commands_completed()); }},
    {"PCI",
     [](const v1::Device& device) { return device.pci_address().empty() ? "-" : device.pci_address(); },
     true},
    {">FREE", Free, true},
    {"THROTTLED", Throttled, true},
    {">LAUNCHES", [](const v1::Device& device) { return CountCell(device.launches()); }},
    {">POOL PEAK", [](const v1::Device& device) { return SizeCell(device.pool_peak_bytes()); }, true},
    {">QUEUES", [](const v1::Device& device) { return absl::StrCat(device.queues()); }, true},
    {">COMPILED",
     [](const v1::Device& device) {
       return device.has_kernels_compiled() ? CountCell(device.kernels_compiled()) : "-";
     },
     true},
    {">COMPILING",
     [](const v1::Device& device) {
       return device.has_kernel_compile_ns() ? Duration(device.kernel_compile_ns()) : "-";
     },
     true},
    {">FROM DISK",
     [](const v1::Device& device) {
       return device.has_kernel_disk_cache_hits() ? CountCell(device.kernel_disk_cache_hits()) : "-";
     },
     true},
    {">EXECUTOR",
     [](const v1::Device& device) {
       return device.has_executor_pid() ? absl::StrCat(device.executor_pid()) : "-";
     },
     true},
    {">REPLACED",
     [](const v1::Device& device) {
       return device.has_executors_replaced() ? absl::StrCat(device.executors_replaced()) : "-";
     },
     true},
    {"WHY -", [](const v1::Device& device) { return WhyUnmeasured(device); }, true},
};

std::string ByDevice(const v1::Session& session) {
  std::string text;
  for (const v1::SessionDevice& share : session.devices()) {
    if (share.memory_bytes() == 0 && share.busy_ns() == 0) continue;
    absl::StrAppend(&text, text.empty() ? "" : "; ", share.index(), ": ", SizeCell(share.memory_bytes()),
                    ", ", share.has_busy_ns() ? Duration(share.busy_ns()) : "-");
  }
  return text.empty() ? "none used" : text;
}

constexpr Column<v1::Session> kSessionColumns[] = {
    {">SESSION", [](const v1::Session& session) { return absl::StrCat(session.id()); }},
    {">PID", [](const v1::Session& session) { return absl::StrCat(session.pid()); }},
    {"USER", [](const v1::Session& session) { return TenantName(session); }},
    {"CLAIM", [](const v1::Session& session) { return session.has_claim() ? session.claim() : "-"; }},
    {"NAME", [](const v1::Session& session) { return session.client_name(); }},
    {"TENANT", [](const v1::Session& session) { return session.tenant(); }},
    {">MEMORY", [](const v1::Session& session) { return SizeCell(session.memory_bytes()); }},
    {">PEAK", [](const v1::Session& session) { return SizeCell(session.memory_peak_bytes()); }},
    {">HOST MEM", [](const v1::Session& session) { return SizeCell(session.host_memory_bytes()); }},
    {">BUFFERS", [](const v1::Session& session) { return absl::StrCat(session.buffers()); }},
    {">QUEUES", [](const v1::Session& session) { return absl::StrCat(session.queues()); }},
    {">COMMANDS", [](const v1::Session& session) { return CountCell(session.commands_completed()); }},
    {">WAITING",
     [](const v1::Session& session) {
       return CountCell(session.commands_submitted() - session.commands_completed());
     }},
    {">BUSY", [](const v1::Session& session) { return Duration(session.busy_ns()); }},
    {">WAITED", [](const v1::Session& session) { return Duration(session.queue_wait_ns()); }},
    {">COMPILING", [](const v1::Session& session) { return CountCell(session.kernels_pending()); }, true},
    {">COMPILED IN", [](const v1::Session& session) { return Duration(session.compile_ns()); }, true},
    {">SHARED", [](const v1::Session& session) { return SizeCell(session.shared_bytes()); }, true},
    {">TENANT OUT", [](const v1::Session& session) { return SizeCell(session.tenant_moved_out_bytes()); },
     true},
    {">TENANT SAVED", [](const v1::Session& session) { return SizeCell(session.tenant_saved_bytes()); },
     true},
    {">UPLOADED", [](const v1::Session& session) { return SizeCell(session.uploaded_bytes()); }},
    {">DOWNLOADED", [](const v1::Session& session) { return SizeCell(session.downloaded_bytes()); }},
    {">AGE", [](const v1::Session& session) { return Duration(session.age_ns()); }},
    {">NICE", [](const v1::Session& session) { return absl::StrCat(session.nice()); }, true},
    {">ERRORS", [](const v1::Session& session) { return CountCell(session.errors()); }, true},
    {"WAITS FOR", [](const v1::Session& session) { return session.waiting_for(); }, true},
    {"BY DEVICE", ByDevice, true},
};

std::string Who(const v1::Quota& quota) {
  if (quota.target_case() == v1::Quota::kDefault) return "default";
  if (quota.has_claim()) return "claim:" + quota.claim();
  return quota.has_uid() ? TenantName(quota) : absl::StrCat("session:", quota.session());
}

// The default quota is not an account, so it has no usage.
std::string Held(const v1::Quota& quota, uint64_t bytes) {
  return quota.target_case() == v1::Quota::kDefault ? "" : SizeCell(bytes);
}

constexpr Column<v1::Quota> kQuotaColumns[] = {
    {">DEVICE", [](const v1::Quota& quota) { return absl::StrCat(quota.device()); }},
    {"WHO", Who},
    {">QUOTA", [](const v1::Quota& quota) { return quota.has_bytes() ? SizeCell(quota.bytes()) : "-"; }},
    {">IN FORCE", [](const v1::Quota& quota) { return SizeCell(quota.effective_bytes()); }},
    {">CREDIT", [](const v1::Quota& quota) { return Held(quota, quota.credit_bytes()); }},
    {">USED", [](const v1::Quota& quota) { return Held(quota, quota.used_bytes()); }},
    {"WHY -", [](const v1::Quota& quota) { return std::string(quota.has_bytes() ? "" : kNoQuota); }, true},
};

constexpr Column<v1::ConfigValue> kConfigColumns[] = {
    {"KEY", [](const v1::ConfigValue& value) { return value.key(); }},
    {"VALUE", [](const v1::ConfigValue& value) { return value.value(); }},
    {"FROM", [](const v1::ConfigValue& value) { return value.origin(); }},
    {"AFTER A RESTART", [](const v1::ConfigValue& value) { return value.pending(); }},
    {"CHANGES",
     [](const v1::ConfigValue& value) { return std::string(value.live() ? "on reload" : "with a restart"); },
     true},
};

}  // namespace

std::string ConfigText(const v1::GetConfigResponse& config, bool wide) {
  return TableOf<v1::ConfigValue>(kConfigColumns, config.values(), wide);
}

std::string StatusText(const v1::GetStatusResponse& status, bool wide) {
  std::string text = DaemonLines(status, wide);
  for (const v1::Device& device : status.devices()) text += DeviceLines(device, wide);
  return text;
}

std::string HostsText(const HostList<v1::GetStatusResponse>& answers, bool wide) {
  std::string text;
  for (const auto& [host, status] : answers)
    absl::StrAppend(&text, text.empty() ? "" : "\n", Line("host", host), StatusText(*status, wide));
  return text;
}
std::string HostsText(const HostList<v1::ListDevicesResponse>& answers, bool wide) {
  return TableOf<v1::Device>(
      kDeviceColumns, answers, [](const auto& list) -> const auto& { return list.devices(); }, wide);
}
std::string HostsText(const HostList<v1::ListSessionsResponse>& answers, bool wide) {
  return TableOf<v1::Session>(
      kSessionColumns, answers, [](const auto& list) -> const auto& { return list.sessions(); }, wide);
}
std::string HostsText(const HostList<v1::ListQuotasResponse>& answers, bool wide) {
  return TableOf<v1::Quota>(
      kQuotaColumns, answers, [](const auto& list) -> const auto& { return list.quotas(); }, wide);
}

std::string DevicesText(const v1::ListDevicesResponse& list, bool wide) {
  return TableOf<v1::Device>(kDeviceColumns, list.devices(), wide);
}

std::string SessionsText(const v1::ListSessionsResponse& list, bool wide) {
  return TableOf<v1::Session>(kSessionColumns, list.sessions(), wide);
}

std::string QuotasText(const v1::ListQuotasResponse& list, bool wide) {
  return TableOf<v1::Quota>(kQuotaColumns, list.quotas(), wide);
}

std::string VersionText(const v1::GetVersionResponse& version) {
  return absl::StrFormat("xpuctl  %s\nxpud    %s (%s)\nprotocol %d to %d, Level Zero %s\n", XPUD_VERSION,
                         PrintableText(version.version()), PrintableText(version.build()),
                         version.protocol_min(), version.protocol_max(), PrintableText(version.level_zero()));
}

Csv StatusCsv(const v1::GetStatusResponse& status) {
  Csv csv = Csv::Of(v1::Daemon::descriptor());
  csv.Add(status.time_ns(), status.daemon());
  return csv;
}

}  // namespace xpud::xpuctl
