// The daemon's end of sessions over a network: each is a session of the daemon's over shared memory, whose
// client is here. gRPC's threads; two a session.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "proto/base/mutex.h"
#include "proto/remote/remote.grpc.pb.h"
#include "sdk/remote/admission.h"

namespace xpud::remote {

class StreamServer final : public v1::Remote::Service {
 public:
  using Stream = grpc::ServerReaderWriter<v1::ServerMessage, v1::ClientMessage>;

  struct Options {
    std::string socket;            // the daemon's; empty: as clients find it
    uint32_t sessions = 0;         // at once
    uint32_t tenant_sessions = 0;  // of these, a tenant's
  };

  StreamServer(const Admission& admission, Options options)
      : admission_(admission), options_(std::move(options)) {}
  grpc::Status Session(grpc::ServerContext* context, Stream* stream) override;

 private:
  // ResourceExhausted: this tenant gets no place now. Once for each that was given: LeavePlace.
  absl::Status TakePlace(const std::string& tenant);
  void LeavePlace(const std::string& tenant);
  absl::Status Serve(const std::string& tenant, grpc::ServerContext& context, Stream& stream);

  const Admission& admission_;
  const Options options_;
  Mutex mutex_;
  uint32_t open_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<std::string, uint32_t> of_tenant_ ABSL_GUARDED_BY(mutex_);  // those that have any
};

}  // namespace xpud::remote
