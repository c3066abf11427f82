// Settings of gRPC servers that answer few and short calls. Header only.
#pragma once

#include <grpcpp/server_builder.h>

namespace xpud::service {

inline void SetSmall(grpc::ServerBuilder& builder) {
  using Option = grpc::ServerBuilder::SyncServerOption;
  builder.SetSyncServerOption(Option::NUM_CQS, 1);
  builder.SetSyncServerOption(Option::MIN_POLLERS, 1);
  builder.SetSyncServerOption(Option::MAX_POLLERS, 2);
  builder.SetMaxReceiveMessageSize(1 << 20);
}

}  // namespace xpud::service
