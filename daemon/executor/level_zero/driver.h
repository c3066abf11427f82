// Finds the Level Zero drivers and the devices they offer. Called once in a process, before any other thread
// exists.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/executor/level_zero/level_zero_device.h"

namespace xpud::executor {

struct DriverOptions {
  std::string driver_library;   // path of libze_xpud.so; empty: beside this binary, in ../lib
  std::string device = "auto";  // a kind or a back end's name: which devices to open
  bool asynchronous = false;    // tests: treat synchronous devices as ones that work on their own
};

// Loads the drivers, which look for their devices. No memory of a device is taken, and another call does
// nothing: so a process that is to open devices soon after it is told may call this ahead.
absl::Status LoadDrivers(const DriverOptions& options);

// The devices of this process's drivers, GPUs first. At least one, or why there is none.
absl::StatusOr<std::vector<std::unique_ptr<LevelZeroDevice>>> OpenLevelZeroDevices(
    const DriverOptions& options);

// Of the API that the daemon is built with, as "1.9".
std::string LevelZeroVersion();

}  // namespace xpud::executor
