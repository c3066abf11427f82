// Finds the Level Zero drivers and their devices. Called once per process, before any other thread exists.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/executor/level_zero/level_zero_device.h"

namespace xpud::executor {

struct DriverOptions {
  std::string driver_library;   // path of libze_xpud.so; empty: beside this binary, in ../lib
  std::string device = "auto";  // a kind or a back end's name: which devices to open
  bool asynchronous = false;    // tests: treat synchronous devices as asynchronous
};

// Sets what Level Zero's loader and our driver library read from the environment, in this process and those
// that it starts: the libraries, and which back ends of ours may look for devices.
// REQUIRES: this is the only thread. Another could read the environment, as libraries do, while it grows.
absl::Status SetDriverEnvironment(const std::string& driver_library, std::span<const std::string> back_ends);

// REQUIRES: SetDriverEnvironment. Loads the drivers, which look for their devices. Allocates no device
// memory; later calls do nothing. A spare executor calls it ahead of time.
absl::Status LoadDrivers(const DriverOptions& options);

// Returns the devices of this process's drivers, GPUs first. At least one, or an error that says why there is
// none.
absl::StatusOr<std::vector<std::unique_ptr<LevelZeroDevice>>> OpenLevelZeroDevices(
    const DriverOptions& options);

// The version of the Level Zero API that the daemon is built with, such as "1.9".
std::string LevelZeroVersion();

}  // namespace xpud::executor
