// Forwards calls of the control plane (xpud.v1.Control) from operators on other machines to the daemon's
// control socket. Messages pass unchanged, so that a new method needs no change here.
#pragma once

#include <grpcpp/grpcpp.h>

#include <string>
#include <vector>

#include "daemon/gateway/admission.h"
#include "proto/remote/server_call.h"

namespace xpud::remote {

class ControlRelay {
 public:
  // `socket` is the daemon's socket for clients; the control socket is in the same folder. Empty: the default
  // that clients use.
  ControlRelay(const Admission& admission, std::string socket)
      : admission_(admission), socket_(std::move(socket)) {}

  // The methods that it serves.
  static std::vector<std::string> methods();
  // Thread-safe.
  grpc::Status Relay(ServerCall& call) const;

 private:
  const Admission& admission_;
  const std::string socket_;
};

}  // namespace xpud::remote
