// Where a client looks for a daemon. Any thread.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace xpud::client {

// Socket paths in the order in which they are tried. `explicit_address` (from ConnectOptions, may be empty),
// else $XPUD_ADDRESS, is the only one when set. Otherwise the system's daemon, where its directory exists,
// and the user's.
absl::StatusOr<std::vector<std::string>> DaemonSockets(const std::string& explicit_address);

// $XPUD_ADDRESS, or empty.
std::string EnvironmentAddress();

// The directory of this user's private daemon: $XDG_RUNTIME_DIR/xpud, or xpud-UID under the temporary folder.
// Made with mode 0700 when it is missing; PermissionDenied when it belongs to somebody else or others may
// enter it.
absl::StatusOr<std::string> UserDirectory();

// The first of DaemonSockets at which something listens; NotFound names those that were tried.
absl::StatusOr<std::string> FindDaemonSocket(const std::string& explicit_address);

}  // namespace xpud::client
