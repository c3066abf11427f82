// Creates and replaces the files of the daemon's own sockets, and the lock beside the clients' one.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "proto/base/unique_fd.h"

namespace xpud::service {

// Removes a socket at `path` that belongs to this user. Refuses anything else there.
absl::Status RemoveStaleSocket(const std::string& path);

// Takes the lock beside the socket `path`, in a folder that is ours. Returns AlreadyExists if another daemon
// holds it. It lasts as long as the result.
absl::StatusOr<UniqueFd> LockBeside(const std::string& path);

// Returns a non-blocking SOCK_SEQPACKET socket that listens at `path`, in a folder that is ours.
absl::StatusOr<UniqueFd> ListenAt(const std::string& path, unsigned mode);

// Returns a non-blocking SOCK_STREAM socket that listens at `path`, for this user and a group that it is in.
absl::StatusOr<UniqueFd> ListenForGroup(const std::string& path, uint32_t group);

}  // namespace xpud::service
