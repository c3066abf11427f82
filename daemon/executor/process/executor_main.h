// An executor process: this binary, started by the daemon, which calls Level Zero for one device. It ends
// with its daemon, or when the device is lost.
#pragma once

#include "daemon/executor/api/chunk_mover.h"
#include "daemon/executor/process/executor_rings.h"
#include "daemon/executor/process/serve_arguments.h"

namespace xpud::executor::process {

// The fds that an executor inherits.
inline constexpr int kMemoryChannelFd = 3;
inline constexpr int kCompilerChannelFd = 4;
inline constexpr int kImportChannelFd = 5;
inline constexpr int kFirstMoverChannelFd = 6;  // for each thread of a ChunkMover
inline constexpr int kMoverChannels = static_cast<int>(ChunkMover::kThreads);
// For each ring its memory, then its doorbell.
inline constexpr int kFirstRingFd = kFirstMoverChannelFd + kMoverChannels;
inline constexpr int kMaxAppendThreads = 4;  // of one class; see RingPlan
inline constexpr int kMaxRings = RingPlan::For(kMaxAppendThreads).total();
inline constexpr int kFirstFreeFd = kFirstRingFd + 2 * kMaxRings;

// Exit statuses.
inline constexpr int kExitDaemonGone = 0, kExitFailed = 1, kExitDeviceLost = 3;

// Loads the drivers, waits for the request to take the device that the arguments name, and serves it until
// the process exits, with one thread per ring.
[[noreturn]] void ServeDevice(const ServeArguments& arguments);

}  // namespace xpud::executor::process
