// Where a client looks for a daemon. Any thread.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "proto/base/unique_fd.h"

namespace xpud::client {

// The one place where this process's daemon is. `kNamed`: the address of ConnectOptions, else $XPUD_ADDRESS.
// Otherwise the system's daemon where its folder, /run/xpud, exists, whether the daemon runs or not: who
// shares a daemon with other users must not silently get another one beside it. Otherwise the user's private
// daemon.
struct DaemonPlace {
  enum class Whose { kNamed, kSystem, kPrivate };
  Whose whose = Whose::kNamed;
  std::string address;  // HOST:PORT, or a socket's path
  std::string folder;   // of kPrivate's socket; it may be missing, or belong to another user
};

// Creates and checks nothing. `explicit_address`: from ConnectOptions; may be empty.
DaemonPlace FindDaemonPlace(const std::string& explicit_address);

// $XPUD_ADDRESS, or empty.
std::string EnvironmentAddress();

// Connects to the socket of a daemon on this machine. Returns NotFound, with what to do, if nothing listens
// there, and PermissionDenied if this user may not connect or if a private daemon's folder is not this
// user's alone.
absl::StatusOr<UniqueFd> ConnectToPlace(const DaemonPlace& place);

// Creates the folder of a private daemon, with mode 0700, if it is missing. Returns PermissionDenied if it
// belongs to another user, if others may enter it, or if its parent's owner could exchange it.
absl::Status MakeUserDirectory(const std::string& folder);

// The path of the socket at which this process's daemon listens. Returns the errors of ConnectToPlace.
absl::StatusOr<std::string> FindDaemonSocket(const std::string& explicit_address);

}  // namespace xpud::client
