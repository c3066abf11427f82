#include "sdk/remote/stream_server.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <cstring>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "proto/base/grpc_status.h"
#include "proto/base/status_macros.h"
#include "proto/remote/commands.h"
#include "proto/transport/handshake.h"
#include "sdk/client/connect.h"
#include "sdk/remote/session_relay.h"

namespace xpud::remote {
namespace {

absl::StatusOr<transport::Hello> ReadHello(const v1::ClientMessage& message) {
  transport::Hello hello;
  if (message.hello().size() != sizeof(hello))
    return absl::InvalidArgumentError("the greeting has another size than this version's");
  std::memcpy(&hello, message.hello().data(), sizeof(hello));
  if (hello.magic != transport::kHelloMagic) return absl::InvalidArgumentError("the greeting is not xpud's");
  if (transport::NegotiateVersion(hello.oldest_version, hello.newest_version) != wire::kNewestVersion)
    return absl::FailedPreconditionError(absl::StrCat("it speaks protocol versions ", hello.oldest_version,
                                                      " to ", hello.newest_version, ", this gateway ",
                                                      wire::kNewestVersion));
  return hello;
}

}  // namespace

absl::Status StreamServer::TakePlace(const std::string& tenant) {
  MutexLock lock(mutex_);
  if (open_ >= options_.sessions)
    return absl::ResourceExhaustedError(
        absl::StrCat("all ", options_.sessions, " places for remote clients are taken"));
  uint32_t& own = of_tenant_[tenant];
  if (own >= options_.tenant_sessions)
    return absl::ResourceExhaustedError(
        absl::StrCat("all ", options_.tenant_sessions, " places of this tenant's are taken"));
  ++own;
  ++open_;
  return absl::OkStatus();
}

void StreamServer::LeavePlace(const std::string& tenant) {
  MutexLock lock(mutex_);
  --open_;
  const auto found = of_tenant_.find(tenant);
  if (--found->second == 0) of_tenant_.erase(found);
}

grpc::Status StreamServer::Session(grpc::ServerContext* context, Stream* stream) {
  const auto tenant = admission_.Identify(*context);
  if (!tenant.ok()) return ToGrpc(tenant.status());
  if (const absl::Status status = TakePlace(*tenant); !status.ok()) return ToGrpc(status);
  const absl::Cleanup leave = [&] { LeavePlace(*tenant); };
  return ToGrpc(Serve(*tenant, *context, *stream));
}

absl::Status StreamServer::Serve(const std::string& tenant, grpc::ServerContext& context, Stream& stream) {
  v1::ClientMessage greeting;
  if (!stream.Read(&greeting)) return absl::OkStatus();
  ASSIGN_OR_RETURN(const transport::Hello hello, ReadHello(greeting));
  ConnectOptions daemon;
  daemon.address = options_.socket;
  daemon.client_name = transport::GetText(hello.client_name);
  daemon.start_daemon = false;
  ASSIGN_OR_RETURN(const client::Connection connection, client::Connect(daemon, tenant));
  v1::ServerMessage welcome;
  welcome.set_welcome(&connection.welcome, sizeof(connection.welcome));
  if (!stream.Write(welcome)) return absl::OkStatus();
  const uint32_t devices = std::min<uint32_t>(connection.welcome.device_count, transport::kMaxDevices);
  return SessionRelay(*connection.transport, devices, stream).Run([&] { context.TryCancel(); });
}

}  // namespace xpud::remote
