// An executor process: the binary started anew by the daemon, which calls Level Zero for one device. It ends
// with its daemon, or when the device is lost.
#pragma once

namespace xpud::executor::process {

// The descriptors that an executor inherits.
inline constexpr int kMemoryChannelFd = 3;
inline constexpr int kCompilerChannelFd = 4;
inline constexpr int kImportChannelFd = 5;
inline constexpr int kFirstRingFd = 6;  // of each ring its memory, then its doorbell
inline constexpr int kMaxRings = 4;
inline constexpr int kFirstFreeFd = kFirstRingFd + 2 * kMaxRings;

// How it ends.
inline constexpr int kExitDaemonGone = 0, kExitFailed = 1, kExitDeviceLost = 3;

// The command line that starts this binary as an executor: kServeArgument, driver, device index, driver
// library, number of rings, and how main confines the process.
inline constexpr char kServeArgument[] = "--serve-device";
inline constexpr int kServeArguments = 7, kConfineArgument = 6;

// Loads the drivers, waits for the command to take the device that the arguments name, and serves it until it
// ends, with a thread for each ring. Returns the exit status where the arguments are wrong; else exits.
int ServeDevice(int argc, char** argv);

}  // namespace xpud::executor::process
