// Serves the streams of remote clients. Each of their sessions is a session of the daemon over shared memory,
// with this process as the client.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "daemon/gateway/admission.h"
#include "daemon/gateway/resumable_sessions.h"
#include "daemon/gateway/tenant_seats.h"
#include "proto/remote/frame.h"
#include "proto/remote/server_call.h"

namespace xpud::remote {

class StreamServer {
 public:
  struct Options {
    std::string socket;       // the daemon's socket; empty: as clients find it
    int sessions = 0;         // limit of concurrent sessions; each further device of one counts as one
    int tenant_sessions = 0;  // limit of one tenant
    std::chrono::milliseconds
        hold;  // how long to keep a session whose connection was lost, if its client asked for it
  };

  StreamServer(const Admission& admission, Options options)
      : admission_(admission),
        options_(std::move(options)),
        handshake_seats_(options_.sessions, options_.tenant_sessions),
        seats_(options_.sessions, options_.tenant_sessions),
        sessions_(options_.hold) {}
  // ResourceExhausted if a thread could not be started.
  const absl::Status& status() const { return sessions_.status(); }
  // Serves one call of kSessionMethod until it ends. Thread-safe.
  grpc::Status Session(ServerCall& call);

 private:
  // Opens a session with the daemon, and its device 0.
  absl::StatusOr<std::shared_ptr<RemoteSession>> Open(const std::string& tenant,
                                                      const v1::ClientHead& greeting);
  absl::Status Begin(const std::string& tenant, const v1::ClientHead& greeting, ServerCall& call);
  // Opens a further device of a session, or resumes a device's stream.
  absl::Status Continue(const std::string& tenant, const v1::ClientHead& greeting, ServerCall& call);
  absl::StatusOr<ServerFrame> AnswerTo(RemoteSession& session, const v1::ClientHead& greeting);
  absl::Status Serve(RemoteSession& session, const std::string& key, uint32_t device, ServerCall& call);

  const Admission& admission_;
  const Options options_;
  TenantSeats handshake_seats_, seats_;
  ResumableSessions sessions_;  // last member: its sessions return their seats
};

}  // namespace xpud::remote
