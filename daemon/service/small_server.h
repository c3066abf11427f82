// Settings of gRPC servers that answer few and short calls. Header only.
#pragma once

#include <grpcpp/server_builder.h>

namespace xpud::service {

// gRPC aborts or hangs if it cannot start a thread. Checked before a server is built: what the library starts
// with the first server, and what another server starts.
inline constexpr int kThreadsOfGrpc = 12, kThreadsOfAServer = 4;

inline void SetSmall(grpc::ServerBuilder& builder) {
  using Option = grpc::ServerBuilder::SyncServerOption;
  builder.SetSyncServerOption(Option::NUM_CQS, 1);
  builder.SetSyncServerOption(Option::MIN_POLLERS, 1);
  builder.SetSyncServerOption(Option::MAX_POLLERS, 2);
  builder.SetMaxReceiveMessageSize(1 << 20);
}

}  // namespace xpud::service
