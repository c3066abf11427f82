#include "tools/xpuctl/views.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "proto/base/text.h"
#include "tools/xpuctl/json.h"
#include "tools/xpuctl/table.h"
#include "tools/xpuctl/units.h"

namespace xpud::xpuctl {
namespace {

std::string Bar(double ratio, size_t width) {
  const auto filled = static_cast<size_t>(std::lround(ratio * static_cast<double>(width)));
  return "[" + std::string(filled, '#') + std::string(width - filled, ' ') + "]";
}

std::string Line(const std::string& what, const std::string& value) {
  return absl::StrFormat("%-11s %s\n", what, PrintableText(value));
}

std::string Kernels(const v1::Device& device) {
  const auto count = [](uint64_t n) { return Count(static_cast<double>(n)); };
  std::string text =
      absl::StrCat(count(device.kernels_compiled()), " compiled in ", Duration(device.kernel_compile_ns()),
                   ", ", count(device.kernel_disk_cache_hits()), " loaded from the disk cache, ",
                   count(device.kernel_cache_hits()), " cache hits, ", count(device.launches()), " launches");
  if (device.kernel_compiles_failed() > 0)
    absl::StrAppend(&text, ", ", count(device.kernel_compiles_failed()), " could not be compiled");
  return text;
}

std::string Executor(const v1::Device& device) {
  const std::string which =
      device.has_executor_pid() ? absl::StrCat("pid ", device.executor_pid()) : "none, it is being replaced";
  return absl::StrCat(which, ", ", device.executors_replaced(), " lost and replaced, ",
                      Count(static_cast<double>(device.launches_replayed())), " launches replayed");
}

}  // namespace

std::string StatusText(const v1::GetStatusResponse& status) {
  const v1::Daemon& daemon = status.daemon();
  std::string text;
  text +=
      Line("daemon",
           absl::StrCat("xpud ", daemon.version(), ", pid ", daemon.pid(), ", user ", UserName(daemon.uid()),
                        daemon.private_daemon() ? ", private (ends after its last client)" : ""));
  text += Line("socket", daemon.socket());
  text += Line("up", Duration(daemon.uptime_ns()));
  if (daemon.has_resident_bytes())
    text += Line("resident", Bytes(static_cast<double>(daemon.resident_bytes())));
  if (daemon.has_cpu_ns()) text += Line("cpu time", Duration(daemon.cpu_ns()));
  text += Line("sessions",
               absl::StrCat(status.sessions_size(), " open, ", daemon.sessions_opened(), " since the start, ",
                            daemon.sessions_closed_for_fault(), " closed for what they did"));
  for (const v1::Device& device : status.devices()) {
    text += Line(absl::StrCat("device ", device.index()),
                 absl::StrCat(device.name(), " (", device.kind(), ", ", device.compute_units(), " units), ",
                              Bytes(static_cast<double>(device.memory_used_bytes())), " of ",
                              Bytes(static_cast<double>(device.memory_total_bytes())), " used, ",
                              Count(static_cast<double>(device.commands_completed())), " commands, busy ",
                              Duration(device.busy_ns())));
    if (device.has_kernels_compiled()) text += Line("  kernels", Kernels(device));
    if (device.has_executors_replaced()) text += Line("  executor", Executor(device));
  }
  return text;
}

std::string DevicesText(const v1::ListDevicesResponse& list) {
  Table table({">INDEX", "NAME", "KIND", "VENDOR", "DRIVER", ">UNITS", ">MEMORY", ">USED", ">POOL", ">BUSY",
               ">COMMANDS", ">LAUNCHES"});
  for (const v1::Device& device : list.devices()) {
    table.Add({absl::StrCat(device.index()), device.name(), device.kind(), device.vendor(), device.driver(),
               absl::StrCat(device.compute_units()), Bytes(static_cast<double>(device.memory_total_bytes())),
               Bytes(static_cast<double>(device.memory_used_bytes())),
               Bytes(static_cast<double>(device.pool_bytes())), Duration(device.busy_ns()),
               Count(static_cast<double>(device.commands_completed())),
               Count(static_cast<double>(device.launches()))});
  }
  return table.ToString();
}

std::string SessionsText(const v1::ListSessionsResponse& list) {
  Table table({">SESSION", ">PID", "USER", "NAME", "TENANT", ">MEMORY", ">PEAK", ">HOST", ">BUFFERS",
               ">QUEUES", ">COMMANDS", ">WAITING", ">BUSY", ">UPLOADED", ">DOWNLOADED", ">AGE"});
  for (const v1::Session& session : list.sessions()) {
    const uint64_t waiting = session.commands_submitted() - session.commands_completed();
    table.Add({absl::StrCat(session.id()), absl::StrCat(session.pid()), UserName(session.uid()),
               session.client_name(), session.tenant(), Bytes(static_cast<double>(session.memory_bytes())),
               Bytes(static_cast<double>(session.memory_peak_bytes())),
               Bytes(static_cast<double>(session.host_memory_bytes())), absl::StrCat(session.buffers()),
               absl::StrCat(session.queues()), Count(static_cast<double>(session.commands_completed())),
               Count(static_cast<double>(waiting)), Duration(session.busy_ns()),
               Bytes(static_cast<double>(session.uploaded_bytes())),
               Bytes(static_cast<double>(session.downloaded_bytes())), Duration(session.age_ns())});
  }
  return table.ToString();
}

std::string QuotasText(const v1::ListQuotasResponse& list) {
  Table table({">DEVICE", "WHO", ">QUOTA", ">IN FORCE", ">CREDIT", ">USED"});
  for (const v1::Quota& quota : list.quotas()) {
    const bool is_default = quota.target_case() == v1::Quota::kDefault;
    const std::string who = is_default        ? "default"
                            : quota.has_uid() ? UserName(quota.uid())
                                              : absl::StrCat("session:", quota.session());
    const auto bytes = [](uint64_t count) { return Bytes(static_cast<double>(count)); };
    table.Add({absl::StrCat(quota.device()), who, quota.has_bytes() ? bytes(quota.bytes()) : "-",
               bytes(quota.effective_bytes()), is_default ? "" : bytes(quota.credit_bytes()),
               is_default ? "" : bytes(quota.used_bytes())});
  }
  return table.ToString();
}

std::string TopText(const v1::GetStatusResponse& status, const Rates& rates) {
  const v1::Daemon& daemon = status.daemon();
  std::string text = absl::StrCat("xpud ", PrintableText(daemon.version()), ", pid ", daemon.pid(), ", up ",
                                  Duration(daemon.uptime_ns()), ", ", status.sessions_size(),
                                  status.sessions_size() == 1 ? " session" : " sessions");
  if (rates.daemon_cpu) absl::StrAppend(&text, ", CPU ", Percent(*rates.daemon_cpu));
  text += "\n\n";
  for (const DeviceRates& row : rates.devices) {
    const v1::Device& device = *row.device;
    absl::StrAppend(&text, "device ", device.index(), " ", PrintableText(device.name()), "  ",
                    Bar(row.busy, 20), " ", Percent(row.busy), " busy, ", Count(row.commands),
                    " commands/s, memory ", Bytes(static_cast<double>(device.memory_used_bytes())), " of ",
                    Bytes(static_cast<double>(device.memory_total_bytes())), ", pool ",
                    Bytes(static_cast<double>(device.pool_bytes())), "\n");
  }
  Table table({">PID", "USER", "NAME", ">DEVICE", ">COMMANDS/S", ">WAITING", ">MEMORY", ">PEAK", ">UP/S",
               ">DOWN/S", ">AGE"});
  for (const SessionRates& row : rates.sessions) {
    const v1::Session& session = *row.session;
    table.Add({absl::StrCat(session.pid()), UserName(session.uid()), session.client_name(), Percent(row.busy),
               Count(row.commands),
               Count(static_cast<double>(session.commands_submitted() - session.commands_completed())),
               Bytes(static_cast<double>(session.memory_bytes())),
               Bytes(static_cast<double>(session.memory_peak_bytes())), Bytes(row.uploaded),
               Bytes(row.downloaded), Duration(session.age_ns())});
  }
  return text + "\n" + table.ToString();
}

std::string TopJson(const v1::GetStatusResponse& status, const Rates& rates) {
  std::string text = absl::StrFormat("{\"seconds\":%.6f", rates.seconds);
  if (rates.daemon_cpu) absl::StrAppendFormat(&text, ",\"daemon_cpu\":%.6f", *rates.daemon_cpu);
  text += ",\"devices\":[";
  for (const DeviceRates& row : rates.devices) {
    absl::StrAppendFormat(&text, "%s{\"index\":%d,\"busy\":%.6f,\"commands_per_second\":%.3f}",
                          &row == &rates.devices[0] ? "" : ",", row.device->index(), row.busy, row.commands);
  }
  text += "],\"sessions\":[";
  for (const SessionRates& row : rates.sessions) {
    absl::StrAppendFormat(
        &text,
        "%s{\"id\":%d,\"pid\":%d,\"client_name\":%s,\"busy\":%.6f,\"commands_per_second\":%.3f,"
        "\"uploaded_bytes_per_second\":%.1f,\"downloaded_bytes_per_second\":%.1f}",
        &row == &rates.sessions[0] ? "" : ",", row.session->id(), row.session->pid(),
        JsonString(row.session->client_name()), row.busy, row.commands, row.uploaded, row.downloaded);
  }
  return absl::StrCat(text, "],\"status\":", ToJson(status), "}\n");
}

std::string VersionText(const v1::GetVersionResponse& version) {
  return absl::StrFormat("xpuctl  %s\nxpud    %s (%s)\nprotocol %d to %d, Level Zero %s\n", XPUD_VERSION,
                         PrintableText(version.version()), PrintableText(version.build()),
                         version.protocol_min(), version.protocol_max(), PrintableText(version.level_zero()));
}

}  // namespace xpud::xpuctl
