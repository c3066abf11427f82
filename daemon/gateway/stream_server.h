// The daemon's end of sessions over a network: each is a session of the daemon's over shared memory, whose
// client is here.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "daemon/gateway/admission.h"
#include "daemon/gateway/resumable_sessions.h"
#include "daemon/gateway/tenant_places.h"
#include "proto/remote/frame.h"
#include "proto/remote/server_call.h"

namespace xpud::remote {

class StreamServer {
 public:
  struct Options {
    std::string socket;              // the daemon's; empty: as clients find it
    int sessions = 0;                // at once
    int tenant_sessions = 0;         // of these, a tenant's
    std::chrono::milliseconds hold;  // of a session whose connection was lost, where its client asked for it
  };

  StreamServer(const Admission& admission, Options options)
      : admission_(admission),
        options_(std::move(options)),
        greeters_(options_.sessions, options_.tenant_sessions),
        places_(options_.sessions, options_.tenant_sessions),
        sessions_(options_.hold) {}
  // Serves a call of kSessionMethod, to its end. Any thread.
  grpc::Status Session(ServerCall& call);

 private:
  absl::StatusOr<std::shared_ptr<ResumableSessions::Session>> Open(const std::string& tenant,
                                                                   const v1::ClientHead& greeting);
  absl::Status Begin(const std::string& tenant, const v1::ClientHead& greeting, ServerCall& call);
  absl::Status GoOn(const std::string& tenant, const v1::ClientHead& greeting, ServerCall& call);
  absl::Status Serve(ResumableSessions::Session& session, const std::string& key, ServerCall& call);

  const Admission& admission_;
  const Options options_;
  TenantPlaces greeters_, places_;
  ResumableSessions sessions_;  // last: its sessions give their places back
};

}  // namespace xpud::remote
