// Reaching a daemon: the socket, the handshake, and starting a private daemon when none answers. Any thread.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "proto/base/unique_fd.h"
#include "proto/transport/handshake.h"
#include "proto/transport/transport.h"
#include "xpud/xpud.h"

namespace xpud::client {

// A connected socket. NotFound when nothing listens there; PermissionDenied when this user may not connect.
absl::StatusOr<UniqueFd> ConnectSocket(const std::string& path);

struct Connection {
  std::unique_ptr<transport::ClientTransport> transport;
  transport::Welcome welcome;
  std::string address;
  bool started_daemon = false;
};

// Finds or starts a daemon as ConnectOptions says, and opens a session with it. `tenant`: where this is a
// gateway, for whom it asks; empty: for its own user.
absl::StatusOr<Connection> Connect(const ConnectOptions& options,
                                   const std::optional<std::string>& tenant = std::nullopt);

}  // namespace xpud::client
