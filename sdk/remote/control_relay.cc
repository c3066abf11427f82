#include "sdk/remote/control_relay.h"

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
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

// One call, of one request and one answer, as all of the control plane's are.
class Call final : public grpc::ServerGenericBidiReactor {
 public:
  Call(const std::shared_ptr<grpc::Channel>& daemon, std::string method)
      : stub_(daemon), method_(std::move(method)) {
    StartRead(&request_);
  }
  explicit Call(const grpc::Status& refusal) : stub_(nullptr) { Finish(refusal); }

  void OnReadDone(bool ok) override {
    if (!ok) return Finish({grpc::INVALID_ARGUMENT, "the call has no request"});
    stub_.UnaryCall(&context_, method_, grpc::StubOptions(), &request_, &response_,
                    [this](const grpc::Status& status) { Answer(status); });
  }
  void OnCancel() override { context_.TryCancel(); }
  void OnDone() override { delete this; }

 private:
  void Answer(const grpc::Status& status) {
    if (!status.ok()) return Finish(status);
    StartWriteAndFinish(&response_, grpc::WriteOptions(), status);
  }

  grpc::GenericStub stub_;
  const std::string method_;
  grpc::ClientContext context_;
  grpc::ByteBuffer request_, response_;
};

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

grpc::ServerGenericBidiReactor* ControlRelay::CreateReactor(grpc::GenericCallbackServerContext* context) {
  const std::string& method = context->method();
  if (!method.starts_with(absl::StrCat("/", v1::Control::service_full_name(), "/")))
    return new Call(grpc::Status(grpc::UNIMPLEMENTED, "this gateway has no such call"));
  if (const absl::Status status = admission_.AdmitOperator(*context); !status.ok())
    return new Call(ToGrpc(status));
  const auto daemon = ConnectControl(socket_);
  return daemon.ok() ? new Call(*daemon, method) : new Call(ToGrpc(daemon.status()));
}

}  // namespace xpud::remote
