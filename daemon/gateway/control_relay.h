// The daemon's control plane (xpud.v1.Control) for operators on other machines: each of its calls is handed
// to the daemon's control socket as it is, so that a new one needs no word here.
#pragma once

#include <grpcpp/grpcpp.h>

#include <string>
#include <vector>

#include "daemon/gateway/admission.h"
#include "proto/remote/server_call.h"

namespace xpud::remote {

class ControlRelay {
 public:
  // `socket`: the daemon's for clients, beside which the control socket lies; empty: as clients find it.
  ControlRelay(const Admission& admission, std::string socket)
      : admission_(admission), socket_(std::move(socket)) {}

  // Of the calls that it serves.
  static std::vector<std::string> methods();
  // Any thread.
  grpc::Status Relay(ServerCall& call) const;

 private:
  const Admission& admission_;
  const std::string socket_;
};

}  // namespace xpud::remote
