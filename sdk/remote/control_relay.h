// The daemon's control plane (xpud.v1.Control) for operators on other machines: each call is handed to the
// daemon's control socket as it is, so that a new one needs no word here. gRPC's threads; waits hold none.
#pragma once

#include <grpcpp/generic/async_generic_service.h>

#include <string>

#include "sdk/remote/admission.h"

namespace xpud::remote {

class ControlRelay final : public grpc::CallbackGenericService {
 public:
  // `socket`: the daemon's for clients, beside which the control socket lies; empty: as clients find it.
  ControlRelay(const Admission& admission, std::string socket)
      : admission_(admission), socket_(std::move(socket)) {}

  grpc::ServerGenericBidiReactor* CreateReactor(grpc::GenericCallbackServerContext* context) override;

 private:
  const Admission& admission_;
  const std::string socket_;
};

}  // namespace xpud::remote
