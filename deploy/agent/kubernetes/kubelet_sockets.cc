#include "deploy/agent/kubernetes/kubelet_sockets.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/grpcpp.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "deploy/agent/kubernetes/names.h"
#include "proto/base/unique_fd.h"
#include "proto/base/unix_address.h"

namespace xpud::agent::kubernetes {
namespace {

constexpr int kFirstReconnectMs = 50, kMaxReconnectMs = 500;
constexpr int kMaxMessageBytes = 16 << 20;  // the limit of the kubelet's own clients
constexpr int64_t kSecondNs = 1'000'000'000;

}  // namespace

std::string DraRegistrationSocket(const std::string& kubelet) {
  return absl::StrCat(kubelet, "/plugins_registry/", kDriver, "-reg.sock");
}

std::string DevicePluginSocket(const std::string& kubelet) {
  return absl::StrCat(kubelet, "/device-plugins/", kDriver, ".sock");
}

bool Answers(const std::string& socket) {
  const auto address = UnixAddress(socket);
  const UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!address.ok() || !fd.valid()) return false;
  const bool connected =
      connect(fd.get(), reinterpret_cast<const sockaddr*>(&*address), sizeof(*address)) == 0;
  return connected || errno == EAGAIN;  // its queue is full
}

absl::Status CheckNoAgentAt(const std::string& socket) {
  if (!Answers(socket)) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("another agent serves ", socket,
                   "; a node has one agent, of one mode: end the other one, or set kubernetes: mode: off"));
}

std::optional<FileIdentity> IdentityOf(const std::string& path) {
  struct stat info = {};
  if (stat(path.c_str(), &info) != 0) return std::nullopt;
  return FileIdentity{.device = info.st_dev,
                      .inode = info.st_ino,
                      .changed_ns = info.st_ctim.tv_sec * kSecondNs + info.st_ctim.tv_nsec};
}

std::shared_ptr<grpc::Channel> LocalChannel(const std::string& socket) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, kFirstReconnectMs);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, kMaxReconnectMs);
  arguments.SetMaxReceiveMessageSize(kMaxMessageBytes);
  return grpc::CreateCustomChannel("unix:" + socket, grpc::InsecureChannelCredentials(), arguments);
}

}  // namespace xpud::agent::kubernetes
