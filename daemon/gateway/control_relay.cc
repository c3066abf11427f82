#include "daemon/gateway/control_relay.h"

#include <grpcpp/impl/codegen/client_unary_call.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"
#include "proto/control/grpc_status.h"
#include "proto/control/xpud.grpc.pb.h"
#include "proto/remote/commands.h"
#include "sdk/client/address.h"

namespace xpud::remote {
namespace {

using grpc::internal::RpcMethod;

absl::StatusOr<std::shared_ptr<grpc::Channel>> ConnectControl(const std::string& socket) {
  ASSIGN_OR_RETURN(const std::string found, client::FindDaemonSocket(socket));
  const std::string path = std::filesystem::path(found).replace_filename("control.sock").string();
  if (access(path.c_str(), W_OK) != 0) {
    return errno == EACCES ? absl::PermissionDeniedError(absl::StrCat(
                                 "the gateway's user may not use the daemon's control plane, ", path))
                           : absl::ErrnoToStatus(errno, absl::StrCat("cannot use ", path));
  }
  return grpc::CreateChannel("unix:" + path, grpc::InsecureChannelCredentials());
}

}  // namespace

std::vector<std::string> ControlRelay::methods() {
  std::vector<std::string> methods;
  const auto* const service = v1::GetStatusRequest::descriptor()->file()->FindServiceByName("Control");
  for (int i = 0; i < service->method_count(); ++i)
    methods.push_back(absl::StrCat("/", service->full_name(), "/", service->method(i)->name()));
  return methods;
}

grpc::Status ControlRelay::Relay(ServerCall& call) const {
  if (const absl::Status status = admission_.AdmitOperator(call.context()); !status.ok())
    return ToGrpc(status);
  grpc::ByteBuffer request, response;
  if (!call.Read(request)) return {grpc::INVALID_ARGUMENT, "the call has no request"};
  const auto daemon = ConnectControl(socket_);
  if (!daemon.ok()) return ToGrpc(daemon.status());
  // Is cancelled with the incoming call.
  const auto onward = grpc::ClientContext::FromServerContext(call.context());
  const grpc::Status status = grpc::internal::BlockingUnaryCall<grpc::ByteBuffer, grpc::ByteBuffer>(
      daemon->get(), RpcMethod(call.method().c_str(), RpcMethod::NORMAL_RPC), onward.get(), request,
      &response);
  if (status.ok()) call.Write(response);
  return status;
}

}  // namespace xpud::remote
