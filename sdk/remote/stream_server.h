// The daemon's end of sessions over a network: each is a session of the daemon's over shared memory, whose
// client is here. gRPC's threads; two a session.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "proto/remote/remote.grpc.pb.h"

namespace xpud::remote {

class StreamServer final : public v1::Remote::Service {
 public:
  struct Options {
    std::string socket;       // the daemon's; empty: as clients find it
    std::string token;        // that clients must show; empty: none (they have shown a certificate)
    uint32_t sessions = 256;  // at once
  };

  explicit StreamServer(Options options) : options_(std::move(options)) {}
  grpc::Status Session(grpc::ServerContext* context,
                       grpc::ServerReaderWriter<v1::ServerMessage, v1::ClientMessage>* stream) override;

 private:
  bool HasToken(const grpc::ServerContext& context) const;

  const Options options_;
  std::atomic<uint32_t> open_{0};
};

}  // namespace xpud::remote
