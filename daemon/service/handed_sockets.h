// Takes over sockets from a service manager, as systemd does for socket units: they are numbered from 3 on
// and described by LISTEN_PID, LISTEN_FDS and LISTEN_FDNAMES. The service manager removes their files.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "proto/base/unique_fd.h"

namespace xpud::service {

struct HandedSockets {
  UniqueFd clients, control;  // invalid if not handed over
};

// Returns the path of xpuctl's socket, beside the clients' socket.
std::string ControlPath(const std::string& client_path);

// Removes the variables from the environment, so that no child process uses the sockets. REQUIRES: one
// thread. Returns no sockets if they are meant for another process. Returns InvalidArgument for a socket that
// does not match its name: "clients" must listen at `client_path`, and "control" beside it.
absl::StatusOr<HandedSockets> TakeHandedSockets(const std::string& client_path);

}  // namespace xpud::service
