// All devices of the machine, each with the kind of executor that suits it. Called by main before any other
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

// Which back ends' devices are opened, and where.
struct DevicePlan {
  std::vector<BackEnd> own_process;  // a process for each device
  std::vector<BackEnd> in_process;

  bool needs_spawner() const { return !own_process.empty(); }
};

// `driver_library`: path of libze_xpud.so; empty: beside this binary, in ../lib. `device`: "auto", "cpu",
// "gpu" or a back end's name. InvalidArgument: the executor does not suit the device.
absl::StatusOr<DevicePlan> PlanDevices(const std::string& driver_library, const std::string& device,
                                       ExecutorKind executor);

struct DevicesOptions {
  DevicePlan plan;
  std::string driver_library;
  std::string device = "auto";
  bool asynchronous =
      false;  // tests: treat synchronous devices of this process as ones that work on their own
  std::chrono::milliseconds command_limit{0};  // executor processes: a command may run this long; 0: any time
  bool standby = false;                        // executor processes: keep a second one ready
  std::function<void()> wake;                  // any thread: a device wants to be polled
  process::Spawner* spawner = nullptr;         // where the plan needs one; outlives the devices
};

// At least one device, GPUs first, or why there is none.
absl::StatusOr<std::vector<std::unique_ptr<Device>>> OpenDevices(const DevicesOptions& options);

}  // namespace xpud::executor
