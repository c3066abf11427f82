// All devices of the machine, each with the kind of executor that suits it. Called once, by main, before any
// other thread exists.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/executor/api/device.h"
#include "daemon/executor/api/executor_kind.h"
#include "daemon/executor/process/spawner.h"

namespace xpud::executor {

struct DevicesOptions {
  std::string driver_library;   // path of libze_xpud.so; empty: beside this binary, in ../lib
  std::string device = "auto";  // "auto", "cpu", "gpu" or a vendor: which devices to open
  ExecutorKind executor = ExecutorKind::kAuto;
  bool asynchronous = false;  // tests: treat the CPU device of a thread as one that works on its own
  std::chrono::milliseconds command_limit{0};  // executor processes: a command may run this long; 0: any time
  bool standby = false;                        // executor processes: keep a second one ready
  std::function<void()> wake;                  // any thread: a device wants to be polled
  process::Spawner* spawner = nullptr;         // where NeedSpawner; outlives the devices
};

// Whether executor processes may have to be started for these devices.
bool NeedSpawner(ExecutorKind executor, const std::string& device);

// At least one device, GPUs first, or why there is none.
absl::StatusOr<std::vector<std::unique_ptr<Device>>> OpenDevices(const DevicesOptions& options);

}  // namespace xpud::executor
