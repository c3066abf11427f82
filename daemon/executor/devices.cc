#include "daemon/executor/devices.h"

#include <spdlog/spdlog.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "daemon/executor/level_zero/driver.h"
#include "daemon/executor/level_zero/level_zero_device.h"
#include "daemon/executor/process/executor_main.h"
#include "daemon/executor/process/process_device.h"
#include "proto/base/spin.h"
#include "proto/base/status_macros.h"
#include "proto/transport/handshake.h"

namespace xpud::executor {
namespace {

using DeviceList = std::vector<std::unique_ptr<Device>>;

process::RingPlan RingsFor(const BackEnd& back_end) {
  const auto most = std::clamp<uint32_t>(back_end.append_threads, 1, process::kMaxAppendThreads);
  return process::RingPlan::For(std::clamp<uint32_t>(static_cast<uint32_t>(UsableCores()) / 4, 1, most));
}

// Adds the devices of a back end, each with an executor process. Returns NotFound if there are none.
absl::Status AddProcessDevices(const DevicesOptions& options, const BackEnd& back_end, DeviceList& devices) {
  uint32_t count = 1;
  const size_t first = devices.size();
  for (uint32_t i = 0; i < count; ++i) {
    process::ProcessDeviceOptions device;
    device.index = static_cast<uint32_t>(devices.size());
    device.spawner = options.spawner;
    device.rings = RingsFor(back_end);
    device.command = {.index = i, .rings = device.rings.total()};
    transport::SetText(device.command.back_end, back_end.name);
    device.batch_executor = options.batch_executor;
    device.command_limit = options.command_limit;
    device.standby = options.standby;
    device.wake = options.wake;
    ASSIGN_OR_RETURN(auto process, process::ExecutorProcess::Start(*options.spawner, device.command));
    RETURN_IF_ERROR(process->TakeDevice());
    count = process->devices();
    const uint64_t peers = process->properties().peers;  // as the back end counts
    ASSIGN_OR_RETURN(auto opened, process::ProcessDevice::Create(std::move(device), std::move(process)));
    opened->SetPeers(peers << first);
    devices.push_back(std::move(opened));
  }
  return absl::OkStatus();
}

// Adds devices of this process's drivers.
absl::Status AddLevelZeroDevices(const DevicesOptions& options, DeviceList& devices) {
  ASSIGN_OR_RETURN(auto opened, OpenLevelZeroDevices({.driver_library = options.driver_library,
                                                      .device = options.device,
                                                      .asynchronous = options.asynchronous}));
  const size_t first = devices.size();
  std::vector<const LevelZeroDevice*> all;
  for (const auto& device : opened) all.push_back(device.get());
  for (auto& device : opened) {
    device->SetWake(options.wake);
    RETURN_IF_ERROR(device->memory().ChooseAddresses());
    uint64_t peers = 0;
    for (size_t i = 0; i < all.size(); ++i) {
      if (all[i] != device.get() && device->CanMap(*all[i])) peers |= uint64_t{1} << (first + i);
    }
    device->SetPeers(peers);
    devices.push_back(std::move(device));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<DevicePlan> PlanDevices(const std::string& driver_library, const std::string& device,
                                       ExecutorKind executor) {
  ASSIGN_OR_RETURN(const std::vector<BackEnd> back_ends, ListBackEnds(driver_library));
  DevicePlan plan;
  for (const BackEnd& back_end : back_ends) {
    if (!back_end.IsWanted(device)) continue;
    if (executor == ExecutorKind::kThread && back_end.own_process && device == back_end.name) {
      return absl::InvalidArgumentError(
          absl::StrCat("--executor thread cannot be used with --device ", device,
                       ", whose devices need processes of their own; allowed: auto, process"));
    }
    const bool own =
        executor == ExecutorKind::kProcess || (executor == ExecutorKind::kAuto && back_end.own_process);
    (own ? plan.own_process : plan.in_process).push_back(back_end);
  }
  if (plan.own_process.empty() && plan.in_process.empty()) {  // produces the error that lists the devices
    std::copy_if(back_ends.begin(), back_ends.end(), std::back_inserter(plan.in_process),
                 [](const BackEnd& back_end) { return !back_end.own_process; });
  }
  return plan;
}

absl::Status PrepareDrivers(const std::string& driver_library, const DevicePlan& plan) {
  std::vector<std::string> names;
  for (const BackEnd& back_end : plan.in_process) names.push_back(back_end.name);
  return SetDriverEnvironment(driver_library, names);
}

absl::StatusOr<DeviceList> OpenDevices(const DevicesOptions& options) {
  DeviceList devices;
  absl::Status none;
  // GPUs first, the CPU device last, as the fallback.
  for (const bool gpus : {true, false}) {
    for (const BackEnd& back_end : options.plan.own_process) {
      if ((back_end.kind == "gpu") != gpus) continue;
      absl::Status added = AddProcessDevices(options, back_end, devices);
      if (absl::IsNotFound(added)) {
        none = added;
        spdlog::info("back_end_without_device reason=\"{}\"", std::string(added.message()));
      } else if (!added.ok()) {
        return added;
      }
    }
  }
  // Also if the plan has no such device: the loader may find drivers of other vendors.
  if (devices.empty() || !options.plan.in_process.empty()) {
    const absl::Status added = AddLevelZeroDevices(options, devices);
    if (devices.empty()) return none.ok() ? added : none;
  }
  for (const auto& device : devices) device->LimitMemory(options.most_memory);
  return devices;
}

}  // namespace xpud::executor
