#include "daemon/telemetry/metrics.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace xpud::telemetry {
namespace {

template <typename Row>
struct Metric {
  Family family;
  std::optional<uint64_t> (*value)(const Row&);
};

// VALUE reads a field that is always measured; OPTIONAL reads one that may be unset.
#define VALUE(Row, field) [](const v1::Row& row) -> std::optional<uint64_t> { return row.field(); }
#define OPTIONAL(Row, field)                                                        \
  [](const v1::Row& row) -> std::optional<uint64_t> {                               \
    return row.has_##field() ? std::optional<uint64_t>(row.field()) : std::nullopt; \
  }

#define COMPILER(field)                                     \
  [](const v1::Daemon& daemon) -> std::optional<uint64_t> { \
    if (!daemon.has_compiler()) return std::nullopt;        \
    return daemon.compiler().field();                       \
  }

constexpr Metric<v1::Daemon> kOfDaemon[] = {
    {{"xpud_uptime_seconds", Type::kGauge, Scale::kNanoseconds, "Time since the daemon started."},
     VALUE(Daemon, uptime_ns)},
    {{"xpud_sessions_opened_total", Type::kCounter, Scale::kOne, "Sessions that clients opened."},
     VALUE(Daemon, sessions_opened)},
    {{"xpud_sessions_closed_for_fault_total", Type::kCounter, Scale::kOne,
      "Sessions that the daemon closed because the client broke the protocol."},
     VALUE(Daemon, sessions_closed_for_fault)},
    {{"xpud_drained", Type::kGauge, Scale::kOne, "1 while the daemon is drained and refuses new sessions."},
     [](const v1::Daemon& daemon) -> std::optional<uint64_t> { return daemon.drained() ? 1 : 0; }},
    {{"process_resident_memory_bytes", Type::kGauge, Scale::kOne, "Resident memory of the daemon's process."},
     OPTIONAL(Daemon, resident_bytes)},
    {{"process_cpu_seconds_total", Type::kCounter, Scale::kNanoseconds,
      "User and system time of the daemon's process."},
     OPTIONAL(Daemon, cpu_ns)},
    {{"xpud_loop_compiler_up", Type::kGauge, Scale::kOne,
      "1 while clients' loop kernels can be compiled, 0 while the process that does is being replaced."},
     [](const v1::Daemon& daemon) -> std::optional<uint64_t> {
       if (!daemon.has_compiler()) return std::nullopt;
       return daemon.compiler().has_pid() ? 1 : 0;
     }},
    {{"xpud_loop_compiler_replaced_total", Type::kCounter, Scale::kOne,
      "How often that process was lost and replaced."},
     COMPILER(replaced)},
    {{"xpud_loop_kernels_compiling", Type::kGauge, Scale::kOne, "Loop kernels that are being compiled."},
     COMPILER(running)},
    {{"xpud_loop_kernels_overdue", Type::kGauge, Scale::kOne,
      "Those of them that take so long that others do not wait for them any more."},
     COMPILER(overdue)},
    {{"xpud_loop_kernels_waiting", Type::kGauge, Scale::kOne, "Loop kernels that wait to be compiled."},
     COMPILER(waiting)},
    {{"xpud_loop_kernels_compiled_total", Type::kCounter, Scale::kOne, "Loop kernels that were compiled."},
     COMPILER(compiled)},
    {{"xpud_loop_kernels_failed_total", Type::kCounter, Scale::kOne, "Loop kernels that did not compile."},
     COMPILER(failed)},
};
#undef COMPILER

// Reads a sensor in thousandths.
#define SENSOR(field)                                                                 \
  [](const v1::Device& device) -> std::optional<uint64_t> {                           \
    if (!device.has_##field()) return std::nullopt;                                   \
    return static_cast<uint64_t>(std::llround(std::max(0.0, device.field()) * 1000)); \
  }

// OpenTelemetry's names for any kind of hardware.
constexpr Metric<v1::Device> kOfHardware[] = {
    {{"hw_temperature_celsius", Type::kGauge, Scale::kThousandths, "Temperature of the device."},
     SENSOR(temperature_celsius)},
    {{"hw_power_watts", Type::kGauge, Scale::kThousandths,
      "Mean power of the device since the previous sample."},
     SENSOR(power_watts)},
    {{"hw_energy_joules_total", Type::kCounter, Scale::kMillionths, "Energy that the device has used."},
     OPTIONAL(Device, energy_microjoules)},
    {{"xpud_device_memory_free_bytes", Type::kGauge, Scale::kOne,
      "Memory of the device that no program uses."},
     OPTIONAL(Device, memory_free_bytes)},
    {{"xpud_device_frequency_megahertz", Type::kGauge, Scale::kThousandths,
      "Frequency of the device's cores."},
     SENSOR(frequency_mhz)},
    {{"xpud_device_throttled", Type::kGauge, Scale::kOne,
      "1 while the frequency is limited, for instance by heat or power."},
     [](const v1::Device& device) -> std::optional<uint64_t> {
       if (!device.has_throttle_reasons()) return std::nullopt;
       return device.throttle_reasons().empty() ? 0 : 1;
     }},
};

#undef SENSOR

// OpenTelemetry's names apply to GPUs. The CPU device has xpud's own names only.
constexpr Metric<v1::Device> kOfGpu[] = {
    {{"hw_gpu_memory_limit_bytes", Type::kGauge, Scale::kOne, "Memory of the GPU."},
     VALUE(Device, memory_total_bytes)},
    {{"hw_gpu_memory_usage_bytes", Type::kGauge, Scale::kOne,
      "Memory of the GPU that xpud has allocated, in buffers or free in its pool."},
     VALUE(Device, pool_bytes)},
};

constexpr Metric<v1::Device> kOfDevice[] = {
    {{"xpud_device_memory_limit_bytes", Type::kGauge, Scale::kOne, "Memory of the device."},
     VALUE(Device, memory_total_bytes)},
    {{"xpud_device_memory_used_bytes", Type::kGauge, Scale::kOne, "Memory in buffers of all sessions."},
     VALUE(Device, memory_used_bytes)},
    {{"xpud_device_pool_bytes", Type::kGauge, Scale::kOne,
      "Memory that xpud has allocated, in buffers or free in its pool."},
     VALUE(Device, pool_bytes)},
    {{"xpud_device_pool_peak_bytes", Type::kGauge, Scale::kOne,
      "Maximum of the memory that xpud has allocated."},
     VALUE(Device, pool_peak_bytes)},
    {{"xpud_device_busy_seconds_total", Type::kCounter, Scale::kNanoseconds,
      "Time during which commands ran; its rate is the device's utilization."},
     VALUE(Device, busy_ns)},
    {{"xpud_device_commands_total", Type::kCounter, Scale::kOne, "Commands that the device completed."},
     VALUE(Device, commands_completed)},
    {{"xpud_device_launches_total", Type::kCounter, Scale::kOne, "Kernels launched."},
     VALUE(Device, launches)},
    {{"xpud_device_peer_bytes_total", Type::kCounter, Scale::kOne,
      "Bytes copied to it from other devices, without the host."},
     VALUE(Device, peer_bytes)},
    {{"xpud_device_predicted_seconds_total", Type::kCounter, Scale::kNanoseconds,
      "Time that work took which ran without that of other sessions, and whose time had been predicted."},
     OPTIONAL(Device, predicted_took_ns)},
    {{"xpud_device_prediction_error_seconds_total", Type::kCounter, Scale::kNanoseconds,
      "By how much the predictions of that work were wrong, too long or too short."},
     OPTIONAL(Device, prediction_error_ns)},
    {{"xpud_device_queues", Type::kGauge, Scale::kOne, "Queues of all sessions."}, VALUE(Device, queues)},
    {{"xpud_device_executors_replaced_total", Type::kCounter, Scale::kOne,
      "Executor processes that were lost and replaced."},
     OPTIONAL(Device, executors_replaced)},
    {{"xpud_device_executor_up", Type::kGauge, Scale::kOne,
      "1 while the device has its executor process, 0 while a lost one is being replaced."},
     [](const v1::Device& device) -> std::optional<uint64_t> {
       if (!device.has_executors_replaced()) return std::nullopt;
       return device.has_executor_pid() ? 1 : 0;
     }},
    {{"xpud_kernels_compiled_total", Type::kCounter, Scale::kOne, "Kernels that were compiled."},
     OPTIONAL(Device, kernels_compiled)},
    {{"xpud_kernel_compile_seconds_total", Type::kCounter, Scale::kNanoseconds, "Time spent compiling them."},
     OPTIONAL(Device, kernel_compile_ns)},
    {{"xpud_kernel_compiles_failed_total", Type::kCounter, Scale::kOne, "Kernels that did not compile."},
     OPTIONAL(Device, kernel_compiles_failed)},
    {{"xpud_kernel_memory_hits_total", Type::kCounter, Scale::kOne, "Kernels found in memory."},
     OPTIONAL(Device, kernel_cache_hits)},
    {{"xpud_kernel_disk_hits_total", Type::kCounter, Scale::kOne,
      "Kernels that an earlier daemon had compiled, loaded from disk."},
     OPTIONAL(Device, kernel_disk_cache_hits)},
    {{"xpud_kernel_shared_hits_total", Type::kCounter, Scale::kOne,
      "Kernels that were compiled or loaded for another device and that this one uses too."},
     OPTIONAL(Device, kernel_shared_hits)},
};

constexpr Metric<v1::Claim> kOfClaim[] = {
    {{"xpud_claim_time_least_ratio", Type::kGauge, Scale::kTenThousandths,
      "Part of each of its devices' time that the claim has while it has work."},
     VALUE(Claim, time_least)},
    {{"xpud_claim_time_most_ratio", Type::kGauge, Scale::kTenThousandths,
      "Part of each of its devices' time that the claim may have at most."},
     VALUE(Claim, time_most)},
    {{"xpud_claim_memory_least_bytes", Type::kGauge, Scale::kOne,
      "Memory on each of its devices that is kept free for the claim."},
     VALUE(Claim, memory_least_bytes)},
    {{"xpud_claim_memory_most_bytes", Type::kGauge, Scale::kOne,
      "Memory on each of its devices that the claim may have at most."},
     OPTIONAL(Claim, memory_most_bytes)},
    {{"xpud_claim_sessions_max", Type::kGauge, Scale::kOne, "Sessions that the claim may have open."},
     OPTIONAL(Claim, sessions_most)},
};

constexpr Metric<v1::Session> kOfClient[] = {
    {{"xpud_client_device_seconds_total", Type::kCounter, Scale::kNanoseconds,
      "Device time charged to the session."},
     VALUE(Session, busy_ns)},
    {{"xpud_client_queue_wait_seconds_total", Type::kCounter, Scale::kNanoseconds,
      "Time during which commands of the session waited for their turn."},
     VALUE(Session, queue_wait_ns)},
    {{"xpud_client_compile_seconds_total", Type::kCounter, Scale::kNanoseconds,
      "Time spent compiling loop kernels in the session's turns."},
     VALUE(Session, compile_ns)},
    {{"xpud_client_kernels_pending", Type::kGauge, Scale::kOne,
      "Loop kernels of the session that wait to be compiled, or are being compiled."},
     VALUE(Session, kernels_pending)},
    {{"xpud_client_memory_bytes", Type::kGauge, Scale::kOne, "Memory of all devices that the session holds."},
     VALUE(Session, memory_bytes)},
    {{"xpud_client_shared_memory_bytes", Type::kGauge, Scale::kOne,
      "Part of that memory that other sessions of the tenant may have, too."},
     VALUE(Session, shared_bytes)},
    {{"xpud_client_memory_peak_bytes", Type::kGauge, Scale::kOne,
      "Maximum of the memory that the session held."},
     VALUE(Session, memory_peak_bytes)},
    {{"xpud_client_host_memory_bytes", Type::kGauge, Scale::kOne,
      "The client's own memory that it shares with devices."},
     VALUE(Session, host_memory_bytes)},
    {{"xpud_client_buffers", Type::kGauge, Scale::kOne, "Buffers that the session has."},
     VALUE(Session, buffers)},
    {{"xpud_client_queues", Type::kGauge, Scale::kOne, "Queues that the session has."},
     VALUE(Session, queues)},
    {{"xpud_client_uploaded_bytes_total", Type::kCounter, Scale::kOne, "Bytes copied to devices."},
     VALUE(Session, uploaded_bytes)},
    {{"xpud_client_downloaded_bytes_total", Type::kCounter, Scale::kOne, "Bytes copied from devices."},
     VALUE(Session, downloaded_bytes)},
    {{"xpud_client_commands_submitted_total", Type::kCounter, Scale::kOne,
      "Commands that the session submitted."},
     VALUE(Session, commands_submitted)},
    {{"xpud_client_commands_total", Type::kCounter, Scale::kOne, "Commands of the session that completed."},
     VALUE(Session, commands_completed)},
    {{"xpud_client_kernels_total", Type::kCounter, Scale::kOne, "Kernels that the session launched."},
     VALUE(Session, kernels)},
    {{"xpud_client_errors_total", Type::kCounter, Scale::kOne, "Commands of the session that failed."},
     VALUE(Session, errors)},
    {{"xpud_client_age_seconds", Type::kGauge, Scale::kNanoseconds, "Time since the session was opened."},
     VALUE(Session, age_ns)},
};

constexpr Metric<v1::DeviceMemory> kOfDeviceMemory[] = {
    {{"xpud_device_moved_out_host_bytes", Type::kGauge, Scale::kOne,
      "Host memory that holds what was moved out of the device."},
     VALUE(DeviceMemory, host_bytes)},
    {{"xpud_device_moved_out_host_limit_bytes", Type::kGauge, Scale::kOne,
      "Host memory that what is moved out may take, of all devices together."},
     VALUE(DeviceMemory, host_limit_bytes)},
    {{"xpud_device_moved_out_file_bytes", Type::kGauge, Scale::kOne,
      "What was moved out of the device and is in files, because the host memory has no room."},
     VALUE(DeviceMemory, file_bytes)},
    {{"xpud_device_memory_turns_total", Type::kCounter, Scale::kOne,
      "Turns that tenants had because their memory does not fit together."},
     VALUE(DeviceMemory, turns)},
    {{"xpud_device_merging_seconds_total", Type::kCounter, Scale::kNanoseconds,
      "Time of the device that it took to find equal contents of its memory."},
     VALUE(DeviceMemory, merging_ns)},
    {{"xpud_device_merging_bytes_total", Type::kCounter, Scale::kOne,
      "Memory that the device read to find equal contents."},
     VALUE(DeviceMemory, merging_bytes)},
};

// By device and tenant.
constexpr Metric<v1::TenantMemory> kOfTenantMemory[] = {
    {{"xpud_memory_on_device_bytes", Type::kGauge, Scale::kOne,
      "Memory of the device that the tenant has, in buffers or free in its pool."},
     VALUE(TenantMemory, on_device_bytes)},
    {{"xpud_memory_out_bytes", Type::kGauge, Scale::kOne,
      "The tenant's memory that is moved out, to host memory or files."},
     VALUE(TenantMemory, moved_out_bytes)},
    {{"xpud_memory_cached_bytes", Type::kGauge, Scale::kOne,
      "Memory of the device that is free in the tenant's pool."},
     VALUE(TenantMemory, cached_bytes)},
    {{"xpud_memory_shared_bytes", Type::kGauge, Scale::kOne,
      "Memory that the tenant's sessions share by reference; counted once."},
     VALUE(TenantMemory, shared_bytes)},
    {{"xpud_memory_saved_bytes", Type::kGauge, Scale::kOne,
      "Memory that the tenant's buffers do not take because their contents are equal to others'."},
     VALUE(TenantMemory, saved_bytes)},
    {{"xpud_memory_moved_in_bytes_total", Type::kCounter, Scale::kOne,
      "Bytes of the tenant that were moved to the device."},
     VALUE(TenantMemory, moved_in_total_bytes)},
    {{"xpud_memory_moved_out_bytes_total", Type::kCounter, Scale::kOne,
      "Bytes of the tenant that were moved out of the device."},
     VALUE(TenantMemory, moved_out_total_bytes)},
    {{"xpud_memory_copied_at_write_bytes_total", Type::kCounter, Scale::kOne,
      "Bytes that were equal to others' and were copied because the tenant wrote them."},
     VALUE(TenantMemory, copied_at_write_bytes)},
};

constexpr Metric<v1::TenantTotal> kOfTenant[] = {
    {{"xpud_tenant_device_seconds_total", Type::kCounter, Scale::kNanoseconds,
      "Device time charged to the tenant's sessions, those that ended included."},
     VALUE(TenantTotal, busy_ns)},
    {{"xpud_tenant_queue_wait_seconds_total", Type::kCounter, Scale::kNanoseconds,
      "Time during which commands of the tenant's sessions waited for their turn, summed over them."},
     VALUE(TenantTotal, queue_wait_ns)},
    {{"xpud_tenant_compile_seconds_total", Type::kCounter, Scale::kNanoseconds,
      "Time spent compiling loop kernels in the tenant's turns."},
     VALUE(TenantTotal, compile_ns)},
    {{"xpud_tenant_memory_bytes", Type::kGauge, Scale::kOne, "Memory of all devices that the tenant holds."},
     VALUE(TenantTotal, memory_bytes)},
    {{"xpud_tenant_shared_memory_bytes", Type::kGauge, Scale::kOne,
      "Part of that memory that the tenant's sessions share, or that is on its way to one of them; counted "
      "once."},
     VALUE(TenantTotal, shared_bytes)},
    {{"xpud_tenant_sessions", Type::kGauge, Scale::kOne, "Sessions of the tenant that are open."},
     VALUE(TenantTotal, sessions)},
    {{"xpud_tenant_sessions_opened_total", Type::kCounter, Scale::kOne, "Sessions that the tenant opened."},
     VALUE(TenantTotal, sessions_opened)},
    {{"xpud_tenant_commands_total", Type::kCounter, Scale::kOne, "Commands of the tenant that completed."},
     VALUE(TenantTotal, commands_completed)},
    {{"xpud_tenant_kernels_total", Type::kCounter, Scale::kOne, "Kernels that the tenant launched."},
     VALUE(TenantTotal, kernels)},
    {{"xpud_tenant_errors_total", Type::kCounter, Scale::kOne, "Commands of the tenant that failed."},
     VALUE(TenantTotal, errors)},
    {{"xpud_tenant_uploaded_bytes_total", Type::kCounter, Scale::kOne,
      "Bytes that the tenant copied to devices."},
     VALUE(TenantTotal, uploaded_bytes)},
    {{"xpud_tenant_downloaded_bytes_total", Type::kCounter, Scale::kOne,
      "Bytes that the tenant copied from devices."},
     VALUE(TenantTotal, downloaded_bytes)},
};

#undef VALUE
#undef OPTIONAL

template <typename Row>
struct Series {
  std::string labels;
  const Row* row;
};

template <typename Row>
void Write(std::span<const Metric<Row>> metrics, const std::vector<Series<Row>>& series, Exposition& out) {
  for (const Metric<Row>& metric : metrics) {
    out.Begin(metric.family);
    for (const Series<Row>& one : series)
      if (const auto value = metric.value(*one.row)) out.Add(one.labels, *value);
  }
}

void WriteDaemon(const v1::GetStatusResponse& snapshot, Exposition& out) {
  const v1::Daemon& daemon = snapshot.daemon();
  out.Begin({"xpud_build_info", Type::kGauge, Scale::kOne, "Always 1; the label is the daemon's version."});
  out.Add(LabelsText({{"version", daemon.version()}}), 1);
  out.Begin({"xpud_sessions", Type::kGauge, Scale::kOne, "Sessions that are open."});
  out.Add("", static_cast<uint64_t>(snapshot.sessions_size()));
  Write<v1::Daemon>(kOfDaemon, {{"", &daemon}}, out);
}

std::string LabelsOf(const v1::Device& device) {
  return LabelsText({{"hw_id", std::to_string(device.index())},
                     {"hw_name", device.name()},
                     {"hw_type", device.kind()},
                     {"vendor", device.vendor()}});
}

void Write(const Labels& labels, const v1::Histogram& histogram, Exposition& out) {
  const std::vector<uint64_t> counts(histogram.counts().begin(), histogram.counts().end());
  if (!counts.empty()) out.AddHistogram(labels, counts, histogram.sum_ns());
}

void WriteTimes(const v1::GetStatusResponse& snapshot, Exposition& out) {
  out.Begin({"xpud_kernel_compile_duration_seconds", Type::kHistogram, Scale::kNanoseconds,
             "How long compiling a kernel took."});
  for (const v1::Device& device : snapshot.devices())
    Write({{"hw_id", std::to_string(device.index())}}, device.kernel_compile_times(), out);
  struct Times {
    Family family;
    const v1::Histogram& (v1::TenantTimes::*histogram)() const;
  };
  constexpr Times kTimes[] = {
      {{"xpud_command_queue_wait_seconds", Type::kHistogram, Scale::kNanoseconds,
        "How long commands waited for their turn."},
       &v1::TenantTimes::queue_wait},
      {{"xpud_command_latency_seconds", Type::kHistogram, Scale::kNanoseconds,
        "How long it took from the arrival of commands until they were known to have completed."},
       &v1::TenantTimes::latency},
      {{"xpud_command_duration_seconds", Type::kHistogram, Scale::kNanoseconds,
        "How long commands took on the device."},
       &v1::TenantTimes::duration},
      {{"xpud_claim_wait_for_lower_seconds", Type::kHistogram, Scale::kNanoseconds,
        "How long work that began after a pause waited for work of lower classes."},
       &v1::TenantTimes::for_lower},
  };
  for (const Times& times : kTimes) {
    out.Begin(times.family);
    for (const v1::TenantTimes& tenant : snapshot.tenant_times()) {
      Write({{"hw_id", std::to_string(tenant.device())}, {"tenant", tenant.tenant()}},
            (tenant.*times.histogram)(), out);
    }
  }
}

void WriteHeld(const v1::GetStatusResponse& snapshot, Exposition& out) {
  out.Begin(
      {"xpud_claim_held_seconds_total", Type::kCounter, Scale::kNanoseconds,
       "Time in which the tenant had commands and was held back: by higher classes and guarantees (class), "
       "its cap, or because it is paused."});
  for (const v1::TenantTimes& tenant : snapshot.tenant_times()) {
    for (const v1::HeldTime& held : tenant.held()) {
      out.Add(LabelsText({{"hw_id", std::to_string(tenant.device())},
                          {"tenant", tenant.tenant()},
                          {"cause", held.cause()}}),
              held.ns());
    }
  }
}

void WriteStalls(const v1::GetStatusResponse& snapshot, Exposition& out) {
  out.Begin({"xpud_stalls_total", Type::kCounter, Scale::kOne,
             "How often a session made no progress for the time that --stall-after sets."});
  for (const v1::Device& device : snapshot.devices()) {
    for (const v1::StallCount& stalls : device.stalls())
      out.Add(LabelsText({{"hw_id", std::to_string(device.index())}, {"cause", stalls.cause()}}),
              stalls.count());
  }
}

void WriteMemory(const v1::GetStatusResponse& snapshot, Exposition& out) {
  std::vector<Series<v1::DeviceMemory>> devices;
  for (const v1::DeviceMemory& device : snapshot.device_memory())
    devices.push_back({LabelsText({{"hw_id", std::to_string(device.device())}}), &device});
  Write<v1::DeviceMemory>(kOfDeviceMemory, devices, out);
  const auto labels = [](const v1::TenantMemory& tenant) -> Labels {
    return {{"hw_id", std::to_string(tenant.device())}, {"tenant", tenant.tenant()}};
  };
  std::vector<Series<v1::TenantMemory>> tenants;
  for (const v1::TenantMemory& tenant : snapshot.tenant_memory())
    tenants.push_back({LabelsText(labels(tenant)), &tenant});
  Write<v1::TenantMemory>(kOfTenantMemory, tenants, out);
  out.Begin({"xpud_memory_stall_seconds", Type::kHistogram, Scale::kNanoseconds,
             "How long commands waited for the tenant's memory that was moved out."});
  for (const v1::TenantMemory& tenant : snapshot.tenant_memory()) Write(labels(tenant), tenant.stalls(), out);
}

// Labels of operators become labels of Prometheus: "pod.name" is label_pod_name.
std::string LabelName(const std::string& name) {
  std::string changed = "label_";
  for (const char c : name)
    changed += (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ? c : '_';
  return changed;
}

void WriteClaims(const v1::GetStatusResponse& snapshot, Exposition& out) {
  std::vector<Series<v1::Claim>> claims;
  for (const v1::Claim& claim : snapshot.claims())
    claims.push_back({LabelsText({{"claim", claim.key()}}), &claim});
  Write<v1::Claim>(kOfClaim, claims, out);
  if (claims.empty()) return;
  out.Begin({"xpud_claim_info", Type::kGauge, Scale::kOne, "1, with what the claim is."});
  for (const v1::Claim& claim : snapshot.claims()) {
    std::map<std::string, std::string> named;  // the first of labels whose names become equal
    for (const auto& [name, value] : std::map(claim.labels().begin(), claim.labels().end()))
      named.emplace(LabelName(name), value);
    Labels labels = {{"claim", claim.key()},
                     {"tenant", "claim:" + claim.key()},
                     {"class", claim.class_()},
                     {"weight", std::to_string(claim.weight())}};
    for (const auto& [name, value] : named) labels.emplace_back(name, value);
    out.Add(LabelsText(labels), 1);
  }
}

std::string LabelsOf(const v1::Session& session) {
  return LabelsText({{"session", std::to_string(session.id())},
                     {"tenant", session.tenant()},
                     {"client", session.client_name()},
                     {"uid", std::to_string(session.uid())},
                     {"pid", std::to_string(session.pid())}});
}

}  // namespace

std::string MetricsText(const v1::GetStatusResponse& snapshot, Format format) {
  Exposition out(format);
  WriteDaemon(snapshot, out);
  std::vector<Series<v1::Device>> devices, gpus;
  for (const v1::Device& device : snapshot.devices()) {
    devices.push_back({LabelsOf(device), &device});
    if (device.kind() == "gpu") gpus.push_back(devices.back());
  }
  Write<v1::Device>(kOfHardware, devices, out);
  Write<v1::Device>(kOfGpu, gpus, out);
  Write<v1::Device>(kOfDevice, devices, out);
  std::vector<Series<v1::TenantTotal>> tenants;
  for (const v1::TenantTotal& tenant : snapshot.tenants())
    tenants.push_back({LabelsText({{"tenant", tenant.tenant()}}), &tenant});
  Write<v1::TenantTotal>(kOfTenant, tenants, out);
  WriteMemory(snapshot, out);
  WriteClaims(snapshot, out);
  WriteStalls(snapshot, out);
  WriteTimes(snapshot, out);
  WriteHeld(snapshot, out);
  std::vector<Series<v1::Session>> sessions;
  for (const v1::Session& session : snapshot.sessions()) sessions.push_back({LabelsOf(session), &session});
  Write<v1::Session>(kOfClient, sessions, out);
  return std::move(out).Finish();
}

}  // namespace xpud::telemetry
