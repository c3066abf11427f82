// The file of a socket that the daemon makes itself.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "proto/base/unique_fd.h"

namespace xpud::service {

// Makes room for a socket at `path`: a socket of ours is removed, anything else there is refused.
absl::Status RemoveStaleSocket(const std::string& path);

// A socket of messages that listens there and does not block; while there is one thread.
absl::StatusOr<UniqueFd> ListenAt(const std::string& path, unsigned mode);

}  // namespace xpud::service
