// Daemons on other machines, HOST:PORT. A process of its own, xpud-connect, speaks to them: to this one it is
// what a daemon on this machine is, a socket and shared memory; so no network code runs here, and a fork
// finds none of its threads. Any thread.
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

// Starts one for the daemon at `address`, and gives the socket to it, on which it greets as that daemon
// would. It ends with the socket, or with this process. Of `options`: timeout, reconnect. NotFound where its
// binary is not there.
absl::StatusOr<UniqueFd> StartConnector(const std::string& address, const ConnectOptions& options);

}  // namespace xpud::client
