// Daemons on other machines, at HOST:PORT. A process of its own, xpud-connect, talks to them. It offers this
// process a socket and shared memory, as a local daemon does. So no network code runs in this process, and no
// thread of it is lost in a fork. Thread-safe.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "proto/base/unique_fd.h"
#include "xpud/xpud.h"

namespace xpud::client {

// "host:port", "10.0.0.1:7070", "[::1]:7070".
bool IsRemoteAddress(const std::string& address);

// Returns InvalidArgument unless the port of a remote address is from `least` to 65535. Beyond that, the
// network's functions would wrap around silently, and a token would go to another port.
absl::Status CheckPort(const std::string& address, int least = 1);

// Starts xpud-connect for the daemon at `address`, and returns a socket on which it answers as that daemon
// would. It ends when the socket is closed, or with this process. Of `options` it uses timeout and reconnect.
// Returns NotFound if its program is not found.
absl::StatusOr<UniqueFd> StartConnector(const std::string& address, const ConnectOptions& options);

}  // namespace xpud::client
