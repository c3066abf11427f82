// Runs a program of Slurm without a shell, for a bounded time and with a bounded output. Thread-safe.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace xpud::agent::slurm {

struct CommandLimits {
  std::chrono::milliseconds time{8'000};
  size_t output = size_t{64} << 20;  // bytes
};

// Runs `arguments`, whose first is the program's path, and returns its standard output. Its standard input is
// empty. Returns NotFound if there is no such program, DeadlineExceeded and ResourceExhausted beyond the
// limits (the program is killed), and Internal with the end of its standard error if it fails.
absl::StatusOr<std::string> RunCommand(const std::vector<std::string>& arguments, CommandLimits limits = {});

}  // namespace xpud::agent::slurm
