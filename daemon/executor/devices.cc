#include "daemon/executor/devices.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <cstdlib>
#include <thread>

#include "daemon/executor/level_zero/driver.h"
#include "daemon/executor/process/executor_main.h"
#include "daemon/executor/process/process_device.h"
#include "proto/base/status_macros.h"
#include "proto/transport/handshake.h"

namespace xpud::executor {
namespace {

using DeviceList = std::vector<std::unique_ptr<Device>>;

process::ExecutorCommand CommandFor(const std::string& vendor, uint32_t index) {
  process::ExecutorCommand command = {.index = index};
  transport::SetText(command.vendor, vendor);
  // A launch on a GPU is mostly the driver's time, of which several threads make better use (H200: one
  // thread 2.4 us, two 1.6, four 1.2); the CPU device's lists run on the thread that appends.
  const unsigned cores = std::thread::hardware_concurrency();
  command.rings = vendor == "cpu" ? 1 : std::clamp(cores / 4, 1U, static_cast<unsigned>(process::kMostRings));
  return command;
}

// Adds the devices of a vendor, each with a process of its own; NotFound where there is none.
absl::Status AddProcessDevices(const DevicesOptions& options, const std::string& vendor,
                               DeviceList& devices) {
  uint32_t count = 1;
  for (uint32_t i = 0; i < count; ++i) {
    process::ProcessDeviceOptions device;
    device.index = static_cast<uint32_t>(devices.size());
    device.spawner = options.spawner;
    device.command = CommandFor(vendor, i);
    device.command_limit = options.command_limit;
    device.standby = options.standby;
    device.wake = options.wake;
    ASSIGN_OR_RETURN(auto process, process::ExecutorProcess::Start(*options.spawner, device.command));
    RETURN_IF_ERROR(process->TakeDevice());
    count = process->devices();
    ASSIGN_OR_RETURN(auto opened, process::ProcessDevice::Create(std::move(device), std::move(process)));
    devices.push_back(std::move(opened));
  }
  return absl::OkStatus();
}

bool MayBeCuda(const std::string& device) { return device == "auto" || device == "gpu" || device == "cuda"; }

}  // namespace

bool NeedSpawner(ExecutorKind executor, const std::string& device) {
  return executor == ExecutorKind::kProcess || (executor == ExecutorKind::kAuto && MayBeCuda(device));
}

absl::StatusOr<DeviceList> OpenDevices(const DevicesOptions& options) {
  DeviceList devices;
  std::string why;
  if (options.device == "cuda" && options.executor == ExecutorKind::kThread)
    return absl::InvalidArgumentError(
        "--executor thread cannot be had with --device cuda: NVIDIA GPUs have processes of their own; "
        "allowed: auto, process");
  const bool cuda_elsewhere = options.executor != ExecutorKind::kThread && MayBeCuda(options.device);
  if (cuda_elsewhere) {
    // The processes have CUDA to themselves.
    setenv("XPUD_CUDA_LIBRARY", "", 1);
    if (absl::Status status = AddProcessDevices(options, "cuda", devices); !status.ok()) {
      if (!absl::IsNotFound(status)) return status;
      why = std::string(status.message());
      spdlog::info("back_end_without_device reason=\"{}\"", why);
    }
  }
  if (options.device == "cuda" || (options.device == "gpu" && !devices.empty())) {
    if (!devices.empty()) return devices;
    return absl::NotFoundError(why);
  }
  if (options.executor == ExecutorKind::kProcess) {
    RETURN_IF_ERROR(AddProcessDevices(options, "cpu", devices));
    return devices;
  }
  auto in_process = OpenLevelZeroDevices({.driver_library = options.driver_library,
                                          .device = options.device,
                                          .asynchronous = options.asynchronous,
                                          .report = !cuda_elsewhere});
  if (!in_process.ok())
    return devices.empty() ? in_process.status() : absl::StatusOr<DeviceList>(std::move(devices));
  for (auto& device : *in_process) {
    device->SetWake(options.wake);
    devices.push_back(std::move(device));
  }
  return devices;
}

}  // namespace xpud::executor
