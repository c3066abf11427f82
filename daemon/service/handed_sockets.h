// The sockets that a service manager has made and hands over, as systemd does for the socket units of a
// service: numbered from 3 on, described by LISTEN_PID, LISTEN_FDS and LISTEN_FDNAMES. Who made them removes
// them.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "proto/base/unique_fd.h"

namespace xpud::service {

struct HandedSockets {
  UniqueFd clients, control;  // invalid where there is none
};

// Where xpuctl connects: beside the clients' socket.
std::string ControlPath(const std::string& client_path);

// Takes the variables out of the environment, so that no child believes the sockets its own; hence while
// there is one thread. None where they are meant for another process. InvalidArgument names a socket that is
// not what its name says: "clients", which listens at `client_path`, or "control", which listens beside it.
absl::StatusOr<HandedSockets> TakeHandedSockets(const std::string& client_path);

}  // namespace xpud::service
