#include "deploy/agent/kubernetes/kubelet_server.h"

#include <sys/stat.h>

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "deploy/agent/core/files.h"
#include "proto/base/start_thread.h"
#include "proto/base/status_macros.h"

namespace xpud::agent::kubernetes {
namespace {

constexpr int kMaxCalls = 64;     // at a time; others wait
constexpr int kGrpcThreads = 12;  // that it may start by itself
constexpr int kMaxMessageBytes = 4 << 20;

}  // namespace

absl::Status KubeletServer::Serve(const std::vector<std::string>& sockets) {
  RETURN_IF_ERROR(CheckThreadsLeft(kGrpcThreads, "gRPC"));
  grpc::ServerBuilder builder;
  calls_ = std::make_unique<remote::CallServer>(builder, kMaxCalls);
  for (auto& [method, handler] : methods_) calls_->AddMethod(method, std::move(handler));
  builder.SetMaxReceiveMessageSize(kMaxMessageBytes);
  for (const std::string& socket : sockets) {
    RETURN_IF_ERROR(MakeFolders(std::filesystem::path(socket).parent_path()));
    builder.AddListeningPort("unix:" + socket, grpc::InsecureServerCredentials());
  }
  server_ = builder.BuildAndStart();
  if (server_ == nullptr)
    return absl::UnavailableError(absl::StrCat("cannot listen at ", absl::StrJoin(sockets, " or at ")));
  RETURN_IF_ERROR(calls_->Start());
  for (const std::string& socket : sockets) chmod(socket.c_str(), 0600);
  return absl::OkStatus();
}

void KubeletServer::Stop(std::chrono::milliseconds patience) {
  if (server_ != nullptr) calls_->Stop(*server_, patience);
  server_ = nullptr;
}

}  // namespace xpud::agent::kubernetes
