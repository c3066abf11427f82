// The daemon's control plane (xpud.v1.Control) for operators on other machines: each of its calls is handed
// to the daemon's control socket as it is, so that a new one needs no word here. gRPC's threads, one a call.
// Not its callback API, whose threads would take part in waiting for what sessions bring, and slow those.
#pragma once

#include <grpcpp/grpcpp.h>
#include <grpcpp/impl/codegen/service_type.h>

#include <deque>
#include <string>

#include "sdk/remote/admission.h"

namespace xpud::remote {

class ControlRelay final : public grpc::Service {
 public:
  // `socket`: the daemon's for clients, beside which the control socket lies; empty: as clients find it.
  ControlRelay(const Admission& admission, std::string socket);

 private:
  grpc::Status Relay(const std::string& method, grpc::ServerContext& context, const grpc::ByteBuffer& request,
                     grpc::ByteBuffer& response) const;

  const Admission& admission_;
  const std::string socket_;
  std::deque<std::string> methods_;  // gRPC keeps pointers to them
};

}  // namespace xpud::remote
