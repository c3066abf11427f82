// Runs a program for `xpuctl grant`, as timeout and env do. One at a time: signals belong to the process.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace xpud::xpuctl {

// The exit statuses of timeout and env.
inline constexpr int kTimeIsOver = 124, kOwnFailure = 125, kCannotRun = 126, kNoProgram = 127,
                     kSignalled = 128;

// Runs `words` with `variables` ("NAME=VALUE") in its environment, and waits for its end. Signals that would
// end this process, SIGUSR1, SIGUSR2, SIGCONT and SIGWINCH, are passed on; those that a terminal sends reach
// the program by itself. After `most` the program gets SIGTERM, and kKillAfter later SIGKILL. Returns the
// status to exit with: the program's, kSignalled + N if signal N has ended it, or kTimeIsOver; kNoProgram or
// kCannotRun after a line on standard error. Returns an error if this process lacks what it needs.
// REQUIRES: `words` is not empty.
inline constexpr std::chrono::seconds kKillAfter{10};
absl::StatusOr<int> RunProgram(const std::vector<std::string>& words,
                               const std::vector<std::string>& variables,
                               std::optional<std::chrono::milliseconds> most);

}  // namespace xpud::xpuctl
