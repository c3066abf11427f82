#include "daemon/gateway/stream_server.h"

#include <grpcpp/grpcpp.h>

#include <cstring>

#include "absl/strings/str_cat.h"
#include "daemon/gateway/session_relay.h"
#include "proto/base/status_macros.h"
#include "proto/control/grpc_status.h"
#include "proto/remote/commands.h"
#include "proto/transport/handshake.h"
#include "sdk/client/connect.h"

namespace xpud::remote {
namespace {

absl::StatusOr<transport::Hello> ReadHello(const v1::ClientHead& greeting) {
  transport::Hello hello;
  if (greeting.hello().size() != sizeof(hello))
    return absl::InvalidArgumentError("the Hello has the wrong size for this version of xpud");
  std::memcpy(&hello, greeting.hello().data(), sizeof(hello));
  if (hello.magic != transport::kHelloMagic)
    return absl::InvalidArgumentError("the first message is not an xpud Hello");
  if (transport::NegotiateVersion(hello.oldest_version, hello.newest_version) != wire::kNewestVersion)
    return absl::FailedPreconditionError(absl::StrCat("it speaks protocol versions ", hello.oldest_version,
                                                      " to ", hello.newest_version, ", this gateway ",
                                                      wire::kOldestVersion, " to ", wire::kNewestVersion));
  return hello;
}

}  // namespace

grpc::Status StreamServer::Session(ServerCall& call) {
  const auto tenant = admission_.Identify(call.context());
  if (!tenant.ok()) return ToGrpc(tenant.status());
  auto handshake = handshake_seats_.Take(*tenant);  // a client that resumes has a seat already
  if (!handshake.ok()) return ToGrpc(handshake.status());
  grpc::ByteBuffer message;
  ClientFrame greeting;
  if (!call.Read(message) || !Parse(message, greeting))
    return {grpc::INVALID_ARGUMENT, "the call has no first frame"};
  handshake->reset();
  return ToGrpc(greeting.head.key().empty() ? Begin(*tenant, greeting.head, call)
                                            : Continue(*tenant, greeting.head, call));
}

absl::StatusOr<std::shared_ptr<RemoteSession>> StreamServer::Open(const std::string& tenant,
                                                                  const v1::ClientHead& greeting) {
  ASSIGN_OR_RETURN(Seat seat, seats_.Take(tenant));
  ASSIGN_OR_RETURN(const transport::Hello hello, ReadHello(greeting));
  ConnectOptions daemon;
  daemon.address = options_.socket;
  daemon.client_name = transport::GetText(hello.client_name);
  daemon.start_daemon = false;
  ASSIGN_OR_RETURN(client::Connection connection, client::Connect(daemon, tenant));
  const bool resumable = greeting.resumable() && options_.hold.count() > 0;
  auto session = std::make_shared<RemoteSession>(tenant, std::move(connection), resumable);
  RETURN_IF_ERROR(session->Open(0, std::move(seat)).status());
  return session;
}

absl::Status StreamServer::Begin(const std::string& tenant, const v1::ClientHead& greeting,
                                 ServerCall& call) {
  ASSIGN_OR_RETURN(const auto session, Open(tenant, greeting));
  const std::string key = sessions_.Add(session, [&call] { call.Cancel(); });
  ServerFrame answer;
  answer.head.set_welcome(&session->welcome(), sizeof(transport::Welcome));
  answer.head.set_key(key);
  if (session->resumable()) answer.head.set_held_ms(static_cast<uint32_t>(options_.hold.count()));
  call.Write(Serialize(answer));
  return Serve(*session, key, 0, call);
}

absl::Status StreamServer::Continue(const std::string& tenant, const v1::ClientHead& greeting,
                                    ServerCall& call) {
  if (greeting.has_nice()) {
    ASSIGN_OR_RETURN(const auto lowered, sessions_.Find(greeting.key(), tenant));
    RETURN_IF_ERROR(lowered->SetNice(greeting.nice()));
    call.Write(Serialize(ServerFrame()));
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const auto session,
                   sessions_.Attach(greeting.key(), tenant, greeting.device(), [&call] { call.Cancel(); }));
  const absl::StatusOr<ServerFrame> answer = AnswerTo(*session, greeting);
  if (absl::IsInvalidArgument(answer.status())) sessions_.Remove(greeting.key(), greeting.device());
  if (!answer.ok()) {
    sessions_.Detach(greeting.key(), greeting.device());
    return answer.status();
  }
  call.Write(Serialize(*answer));
  return Serve(*session, greeting.key(), greeting.device(), call);
}

absl::StatusOr<ServerFrame> StreamServer::AnswerTo(RemoteSession& session, const v1::ClientHead& greeting) {
  ServerFrame answer;
  if (greeting.opens()) {
    ASSIGN_OR_RETURN(Seat seat, seats_.Take(session.tenant()));
    RETURN_IF_ERROR(session.Open(greeting.device(), std::move(seat)).status());
  } else {
    ASSIGN_OR_RETURN(SessionRelay* const relay, session.Find(greeting.device()));
    ASSIGN_OR_RETURN(const uint64_t received, relay->Resume(greeting.received()));
    answer.head.set_received(received);
  }
  return answer;
}

absl::Status StreamServer::Serve(RemoteSession& session, const std::string& key, uint32_t device,
                                 ServerCall& call) {
  ASSIGN_OR_RETURN(SessionRelay* const relay, session.Find(device));
  const auto end = relay->Run(call);
  if (end.ok() && *end == SessionRelay::End::kLost)
    sessions_.Detach(key, device);
  else
    sessions_.Remove(key, device);
  return end.status();
}

}  // namespace xpud::remote
