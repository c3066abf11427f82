#include <cstdio>

#include "absl/strings/str_cat.h"
#include "tools/xpuctl/command.h"
#include "tools/xpuctl/control_client.h"
#include "tools/xpuctl/json.h"
#include "tools/xpuctl/units.h"

namespace xpud::xpuctl {
namespace {

void Line(const char* what, const std::string& value) { std::printf("%-11s %s\n", what, value.c_str()); }

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

void Print(const v1::GetStatusResponse& status) {
  const v1::Daemon& daemon = status.daemon();
  Line("daemon",
       absl::StrCat("xpud ", daemon.version(), ", pid ", daemon.pid(), ", user ", UserName(daemon.uid()),
                    daemon.private_daemon() ? ", private (ends after its last client)" : ""));
  Line("socket", daemon.socket());
  Line("up", Duration(daemon.uptime_ns()));
  if (daemon.has_resident_bytes()) Line("resident", Bytes(static_cast<double>(daemon.resident_bytes())));
  if (daemon.has_cpu_ns()) Line("cpu time", Duration(daemon.cpu_ns()));
  Line("sessions",
       absl::StrCat(status.sessions_size(), " open, ", daemon.sessions_opened(), " since the start, ",
                    daemon.sessions_closed_for_fault(), " closed for what they did"));
  for (const v1::Device& device : status.devices()) {
    Line(absl::StrCat("device ", device.index()).c_str(),
         absl::StrCat(device.name(), " (", device.kind(), ", ", device.compute_units(), " units), ",
                      Bytes(static_cast<double>(device.memory_used_bytes())), " of ",
                      Bytes(static_cast<double>(device.memory_total_bytes())), " used, ",
                      Count(static_cast<double>(device.commands_completed())), " commands, busy ",
                      Duration(device.busy_ns())));
    if (device.has_kernels_compiled()) Line("  kernels", Kernels(device));
    if (device.has_executors_replaced()) Line("  executor", Executor(device));
  }
}

}  // namespace

int RunStatus(const Invocation& invocation) {
  if (const int refused = RefuseArguments("status", invocation)) return refused;
  auto client = ControlClient::Connect(invocation.address);
  if (!client.ok()) return Report(client.status());
  auto status = client->GetStatus();
  if (!status.ok()) return Report(status.status());
  invocation.output == Output::kJson ? void(std::puts(ToJson(*status).c_str())) : Print(*status);
  return kOk;
}

}  // namespace xpud::xpuctl
