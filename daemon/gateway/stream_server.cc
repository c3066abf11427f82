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
  auto handshake = handshake_places_.Take(*tenant);  // a client that resumes has a place already
  if (!handshake.ok()) return ToGrpc(handshake.status());
  grpc::ByteBuffer message;
  ClientFrame greeting;
  if (!call.Read(message) || !Parse(message, greeting))
    return {grpc::INVALID_ARGUMENT, "the call has no first frame"};
  handshake->reset();
  return ToGrpc(greeting.head.key().empty() ? Begin(*tenant, greeting.head, call)
                                            : Resume(*tenant, greeting.head, call));
}

absl::StatusOr<std::shared_ptr<ResumableSessions::Session>> StreamServer::Open(
    const std::string& tenant, const v1::ClientHead& greeting) {
  ASSIGN_OR_RETURN(Place place, places_.Take(tenant));
  ASSIGN_OR_RETURN(const transport::Hello hello, ReadHello(greeting));
  ConnectOptions daemon;
  daemon.address = options_.socket;
  daemon.client_name = transport::GetText(hello.client_name);
  daemon.start_daemon = false;
  ASSIGN_OR_RETURN(client::Connection connection, client::Connect(daemon, tenant));
  const bool resumable = greeting.resumable() && options_.hold.count() > 0;
  return std::shared_ptr<ResumableSessions::Session>(new ResumableSessions::Session{
      tenant, std::move(place), SessionRelay(std::move(connection), resumable)});
}

absl::Status StreamServer::Begin(const std::string& tenant, const v1::ClientHead& greeting,
                                 ServerCall& call) {
  ASSIGN_OR_RETURN(const auto session, Open(tenant, greeting));
  ServerFrame answer;
  const transport::Welcome& welcome = session->relay.welcome();
  answer.head.set_welcome(&welcome, sizeof(welcome));
  std::string key;
  if (greeting.resumable() && options_.hold.count() > 0) {
    key = sessions_.Add(session, [&call] { call.Cancel(); });
    answer.head.set_key(key);
    answer.head.set_held_ms(static_cast<uint32_t>(options_.hold.count()));
  }
  call.Write(Serialize(answer));
  return Serve(*session, key, call);
}

absl::Status StreamServer::Resume(const std::string& tenant, const v1::ClientHead& greeting,
                                  ServerCall& call) {
  ASSIGN_OR_RETURN(const auto session, sessions_.Resume(greeting.key(), tenant, [&call] { call.Cancel(); }));
  const auto received = session->relay.Resume(greeting.received());
  if (!received.ok()) {
    sessions_.Remove(greeting.key());
    return received.status();
  }
  ServerFrame answer;
  answer.head.set_received(*received);
  call.Write(Serialize(answer));
  return Serve(*session, greeting.key(), call);
}

// `key` is empty if the session cannot be resumed.
absl::Status StreamServer::Serve(ResumableSessions::Session& session, const std::string& key,
                                 ServerCall& call) {
  const auto end = session.relay.Run(call);
  if (end.ok() && *end == SessionRelay::End::kLost && !key.empty())
    sessions_.Hold(key);
  else
    sessions_.Remove(key);
  return end.status();
}

}  // namespace xpud::remote
