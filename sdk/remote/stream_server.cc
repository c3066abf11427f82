#include "sdk/remote/stream_server.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <cstring>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "proto/remote/commands.h"
#include "proto/transport/handshake.h"
#include "sdk/client/connect.h"
#include "sdk/remote/session_relay.h"

namespace xpud::remote {
namespace {

grpc::Status ToGrpc(const absl::Status& status) {
  return {static_cast<grpc::StatusCode>(status.code()), std::string(status.message())};
}

// Takes as long whatever the difference is.
bool IsSame(std::string_view a, std::string_view b) {
  unsigned differs = a.size() != b.size();
  for (size_t i = 0; i < a.size(); ++i)
    differs |= static_cast<unsigned char>(a[i]) ^ static_cast<unsigned char>(b[b.empty() ? 0 : i % b.size()]);
  return differs == 0;
}

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

bool StreamServer::HasToken(const grpc::ServerContext& context) const {
  if (options_.token.empty()) return true;
  const auto& metadata = context.client_metadata();
  const auto found = metadata.find(kAuthorization);
  const std::string expected = absl::StrCat("Bearer ", options_.token);
  return found != metadata.end() && IsSame({found->second.data(), found->second.size()}, expected);
}

grpc::Status StreamServer::Session(grpc::ServerContext* context,
                                   grpc::ServerReaderWriter<v1::ServerMessage, v1::ClientMessage>* stream) {
  if (!HasToken(*context))
    return {grpc::UNAUTHENTICATED,
            "the token is missing or wrong; XPUD_TOKEN_FILE names the file that has it"};
  const bool has_place = open_.fetch_add(1) < options_.sessions;
  const absl::Cleanup leave = [&] { open_.fetch_sub(1); };
  if (!has_place)
    return {grpc::RESOURCE_EXHAUSTED,
            absl::StrCat("all ", options_.sessions, " places for remote clients are taken")};
  v1::ClientMessage greeting;
  if (!stream->Read(&greeting)) return grpc::Status::OK;
  const auto hello = ReadHello(greeting);
  if (!hello.ok()) return ToGrpc(hello.status());
  ConnectOptions daemon;
  daemon.address = options_.socket;
  daemon.client_name = transport::GetText(hello->client_name);
  daemon.start_daemon = false;
  auto connection = client::Connect(daemon);
  if (!connection.ok()) return ToGrpc(connection.status());
  v1::ServerMessage welcome;
  welcome.set_welcome(&connection->welcome, sizeof(connection->welcome));
  if (!stream->Write(welcome)) return grpc::Status::OK;
  const uint32_t devices = std::min<uint32_t>(connection->welcome.device_count, transport::kMaxDevices);
  SessionRelay(*connection->transport, devices, *stream).Run([&] { context->TryCancel(); });
  return grpc::Status::OK;
}

}  // namespace xpud::remote
