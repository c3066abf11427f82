// Finds the Level Zero drivers and the devices they offer. Called once, by main, before any other thread
// exists.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/executor/device.h"

namespace xpud::executor {

struct DriverOptions {
  std::string driver_library;   // path of libze_xpud.so; empty: beside this binary, in ../lib
  std::string device = "auto";  // "auto", "cpu" or "cuda": which devices to open
  bool asynchronous = false;    // tests: treat the CPU device as one that works on its own
};

// At least one device, or why there is none.
absl::StatusOr<std::vector<std::unique_ptr<Device>>> OpenDevices(const DriverOptions& options);

}  // namespace xpud::executor
