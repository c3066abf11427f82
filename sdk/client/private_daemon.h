// Starts a daemon of this user's own, which ends by itself a while after its last client. Processes that
// start together get one. Any thread.
#pragma once

#include <chrono>
#include <string>

#include "absl/status/statusor.h"
#include "proto/base/unique_fd.h"

namespace xpud::client {

struct PrivateDaemon {
  UniqueFd socket;  // connected
  std::string address;
  bool started_here = false;  // false: another process was faster
};

// `directory` belongs to this user alone. Prints one line to stderr when it started a daemon.
absl::StatusOr<PrivateDaemon> StartPrivateDaemon(const std::string& directory,
                                                 std::chrono::milliseconds timeout);

}  // namespace xpud::client
