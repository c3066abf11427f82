// Opens all devices of the machine, each with a suitable kind of executor. Called by main before any other
// thread exists.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/executor/api/device.h"
#include "daemon/executor/api/executor_kind.h"
#include "daemon/executor/level_zero/back_end.h"
#include "daemon/executor/process/spawner.h"

namespace xpud::executor {

// Which back ends' devices are opened, and in which process.
struct DevicePlan {
  std::vector<BackEnd> own_process;  // a process for each device
  std::vector<BackEnd> in_process;

  bool needs_spawner() const { return !own_process.empty(); }
};

// `driver_library`: path of libze_xpud.so; empty: beside this binary, in ../lib. `device`: "auto", "cpu",
// "gpu" or a back end's name. Returns InvalidArgument if the executor kind does not suit the device.
absl::StatusOr<DevicePlan> PlanDevices(const std::string& driver_library, const std::string& device,
                                       ExecutorKind executor);

// Sets what the drivers of this process read from the environment. Call before OpenDevices.
// REQUIRES: this is the only thread.
absl::Status PrepareDrivers(const std::string& driver_library, const DevicePlan& plan);

struct DevicesOptions {
  DevicePlan plan;
  std::string driver_library;
  std::string device = "auto";
  bool asynchronous = false;  // tests: treat synchronous devices of this process as asynchronous
  // Executor processes: the longest time of a command; 0: no limit.
  std::chrono::milliseconds command_limit{0};
  uint64_t most_memory = UINT64_MAX;  // tests: no device has more bytes
  bool standby = false;               // executor processes: keep a spare that has opened the device
  BatchExecutor batch_executor = BatchExecutor::kAuto;
  std::function<void()> wake;           // called on any thread when a device must be polled
  process::Spawner* spawner = nullptr;  // needed for executor processes; outlives the devices
};

// Returns at least one device, GPUs first, or an error that says why there is none.
absl::StatusOr<std::vector<std::unique_ptr<Device>>> OpenDevices(const DevicesOptions& options);

}  // namespace xpud::executor
