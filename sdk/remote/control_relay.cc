#include "sdk/remote/control_relay.h"

#include <grpcpp/impl/codegen/client_unary_call.h>
#include <grpcpp/impl/codegen/method_handler.h>
#include <grpcpp/impl/codegen/rpc_service_method.h>
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
using Handler = grpc::internal::RpcMethodHandler<ControlRelay, grpc::ByteBuffer, grpc::ByteBuffer>;

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

ControlRelay::ControlRelay(const Admission& admission, std::string socket)
    : admission_(admission), socket_(std::move(socket)) {
  const auto* const service = v1::GetStatusRequest::descriptor()->file()->FindServiceByName("Control");
  for (int i = 0; i < service->method_count(); ++i) {
    const std::string& method =
        methods_.emplace_back(absl::StrCat("/", service->full_name(), "/", service->method(i)->name()));
    AddMethod(new grpc::internal::RpcServiceMethod(
        method.c_str(), RpcMethod::NORMAL_RPC,
        new Handler(
            [&method](ControlRelay* relay, grpc::ServerContext* context, const grpc::ByteBuffer* request,
                      grpc::ByteBuffer* response) {
              return relay->Relay(method, *context, *request, *response);
            },
            this)));
  }
}

grpc::Status ControlRelay::Relay(const std::string& method, grpc::ServerContext& context,
                                 const grpc::ByteBuffer& request, grpc::ByteBuffer& response) const {
  if (const absl::Status status = admission_.AdmitOperator(context); !status.ok()) return ToGrpc(status);
  const auto daemon = ConnectControl(socket_);
  if (!daemon.ok()) return ToGrpc(daemon.status());
  const auto onward = grpc::ClientContext::FromServerContext(context);  // ends with it
  return grpc::internal::BlockingUnaryCall<grpc::ByteBuffer, grpc::ByteBuffer>(
      daemon->get(), RpcMethod(method.c_str(), RpcMethod::NORMAL_RPC), onward.get(), request, &response);
}

}  // namespace xpud::remote
