// Connects to a daemon: finds its socket, does the handshake, starts a private daemon if none answers, and
// opens devices. Thread-safe.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "proto/base/unique_fd.h"
#include "proto/transport/handshake.h"
#include "proto/transport/requests.h"
#include "proto/transport/transport.h"
#include "xpud/xpud.h"

namespace xpud::client {

// Returns a connected socket. Returns NotFound if nothing listens there, and PermissionDenied if this user
// may not connect.
absl::StatusOr<UniqueFd> ConnectSocket(const std::string& path);

// A session with a daemon.
struct Connection {
  std::shared_ptr<const transport::SessionSocket> socket;
  transport::Welcome welcome;
  std::string address;
  bool started_daemon = false;
  bool is_relayed = false;  // the daemon is on another machine, or this is a gateway's session
};

// Finds or starts a daemon as ConnectOptions says, and opens a session. `tenant`: for gateways, the tenant of
// the session; empty: the gateway's own user.
absl::StatusOr<Connection> Connect(const ConnectOptions& options,
                                   const std::optional<std::string>& tenant = std::nullopt);

// A user's view of its own sessions, while `socket` is open: the control plane answers over gRPC on `calls`.
struct View {
  UniqueFd socket, calls;
};
// Asks the daemon at `path` for one, for users who are not operators. Returns PermissionDenied if the daemon
// has none to give, ResourceExhausted if it has given too many, and errors of ConnectSocket.
absl::StatusOr<View> ConnectView(const std::string& path, std::chrono::milliseconds timeout);

// Opens a device (the daemon's number) for the session, and returns its transport. Blocks until the daemon
// answers. `peers`: not null: gets the mask of devices (the daemon's numbers) from which this one copies.
absl::StatusOr<std::unique_ptr<transport::ClientTransport>> OpenDevice(const Connection& connection,
                                                                       uint32_t device,
                                                                       uint64_t* peers = nullptr);

}  // namespace xpud::client
