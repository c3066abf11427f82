// An executor process: the binary started anew by the daemon, which calls Level Zero for one device. It ends
// with its daemon, or when the device is lost.
#pragma once

#include <string>

#include "daemon/executor/driver.h"

namespace xpud::executor::process {

// The descriptors that an executor inherits.
inline constexpr int kMemoryChannelFd = 3;
inline constexpr int kCompilerChannelFd = 4;
inline constexpr int kImportChannelFd = 5;
inline constexpr int kFirstRingFd = 6;  // of each ring its memory, then its doorbell
inline constexpr int kMostRings = 4;
inline constexpr int kFirstFreeFd = kFirstRingFd + 2 * kMostRings;

// How it ends.
inline constexpr int kExitDaemonGone = 0, kExitFailed = 1, kExitDeviceLost = 3;

// Loads the drivers, waits to be told to take device `index` of those that `options` names, and serves it
// until it ends, with a thread for each ring.
[[noreturn]] void ServeDevice(const DriverOptions& options, int index, int rings);

}  // namespace xpud::executor::process
