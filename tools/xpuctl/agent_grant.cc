#include "tools/xpuctl/agent_grant.h"

#include <fcntl.h>
#include <grpcpp/create_channel_posix.h>
#include <grpcpp/grpcpp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "deploy/agent/grants/grants.grpc.pb.h"
#include "deploy/agent/grants/local_socket.h"
#include "proto/base/descriptor_error.h"
#include "proto/base/start_thread.h"
#include "proto/base/status_macros.h"
#include "proto/base/text.h"
#include "proto/base/unique_fd.h"
#include "proto/base/unix_address.h"
#include "proto/control/grpc_status.h"

namespace xpud::xpuctl {
namespace {

namespace messages = grants::v1;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr seconds kCallTimeout{20};    // the agent waits 12 s for the daemon
constexpr seconds kReturnTimeout{35};  // it waits 30 s for the end of sessions
constexpr milliseconds kMinRenewal{500};
constexpr int kThreadsOfGrpc = 8;

std::string Text(const absl::Status& status) { return PrintableText(std::string(status.message())); }

// A connection to the agent; each call has one of its own, so that an agent that starts anew is found.
absl::StatusOr<std::unique_ptr<messages::Grants::Stub>> Connect(const std::string& path) {
  ASSIGN_OR_RETURN(const sockaddr_un address, UnixAddress(path));
  UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return DescriptorError("socket");
  if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    const std::string reason = std::strerror(errno);
    if (errno != ENOENT && errno != ECONNREFUSED)
      return absl::PermissionDeniedError(absl::StrCat("cannot connect to ", path, ": ", reason));
    return absl::NotFoundError(absl::StrCat("no xpud-node-agent serves grants at ", path, " (", reason,
                                            "); start it (systemctl start xpud-node-agent), or name its "
                                            "socket with --address"));
  }
  if (fcntl(fd.get(), F_SETFL, O_NONBLOCK) != 0) return DescriptorError("fcntl");
  RETURN_IF_ERROR(CheckThreadsLeft(kThreadsOfGrpc, "a call of the agent"));
  return messages::Grants::NewStub(grpc::CreateInsecureChannelFromFd("xpud-node-agent", fd.Release()));
}

template <typename Request, typename Response>
using Method = grpc::Status (messages::Grants::Stub::*)(grpc::ClientContext*, const Request&, Response*);

// Calls the agent. `is_final`: set if the agent says that waiting does not help; may be null.
template <typename Request, typename Response>
absl::StatusOr<Response> Call(const std::string& socket, Method<Request, Response> method,
                              const Request& request, seconds timeout, bool* is_final = nullptr) {
  ASSIGN_OR_RETURN(const std::unique_ptr<messages::Grants::Stub> stub, Connect(socket));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + timeout);
  Response response;
  const grpc::Status status = (stub.get()->*method)(&context, request, &response);
  if (status.ok()) return response;
  if (is_final != nullptr) {
    const auto& metadata = context.GetServerTrailingMetadata();
    const auto found = metadata.find(agent::kRefusalKey);
    *is_final = found != metadata.end() && found->second == agent::kFinalRefusal;
  }
  if (status.error_code() == grpc::StatusCode::UNIMPLEMENTED)
    return absl::UnimplementedError(absl::StrCat("no xpud-node-agent listens at ", socket));
  return FromGrpc(status);
}

}  // namespace

AgentGrant::Taken AgentGrant::Take(const std::string& socket, messages::GrantRequest request) {
  bool is_final = false;
  const auto ask = [&] {
    return Call(socket, &messages::Grants::Stub::Grant, request, kCallTimeout, &is_final);
  };
  request.set_until_caller_ends(true);
  absl::StatusOr<messages::GrantResponse> granted = ask();
  const bool renews = absl::IsFailedPrecondition(granted.status());  // the agent cannot watch this process
  if (renews) {
    request.set_until_caller_ends(false);
    granted = ask();
  }
  if (!granted.ok()) {
    const bool may_pass =
        (absl::IsResourceExhausted(granted.status()) && !is_final) || absl::IsUnavailable(granted.status());
    return {nullptr, granted.status(), may_pass};
  }
  std::unique_ptr<AgentGrant> grant(new AgentGrant(socket, *std::move(granted)));
  if (!renews) return {std::move(grant), absl::OkStatus()};
  if (absl::Status started = grant->StartRenewals(); !started.ok()) {
    grant->Return().IgnoreError();  // it ends with its lease
    return {nullptr, started};
  }
  return {std::move(grant), absl::OkStatus()};
}

AgentGrant::~AgentGrant() { StopRenewals(); }

absl::Status AgentGrant::StartRenewals() {
  ASSIGN_OR_RETURN(renews_, StartThread("xpuctl-renew", [this] { RenewAll(); }));
  return absl::OkStatus();
}

void AgentGrant::StopRenewals() {
  {
    const MutexLock lock(mutex_);
    stops_ = true;
    changed_.NotifyAll();
  }
  if (renews_.joinable()) renews_.join();
}

absl::StatusOr<uint64_t> AgentGrant::Renew() const {
  messages::RenewRequest request;
  request.set_grant(granted_.grant());
  ASSIGN_OR_RETURN(const messages::RenewResponse renewed,
                   Call(socket_, &messages::Grants::Stub::Renew, request, kCallTimeout));
  return renewed.expires_in_ms();
}

// Renews at a third of the lease, so that an attempt may fail.
void AgentGrant::RenewAll() {
  uint64_t lease_ms = granted_.expires_in_ms();
  while (true) {
    const auto due = std::chrono::steady_clock::now() + std::max(kMinRenewal, milliseconds(lease_ms) / 3);
    {
      const MutexLock lock(mutex_);
      while (!stops_ && std::chrono::steady_clock::now() < due)
        changed_.WaitFor(mutex_, due - std::chrono::steady_clock::now());
      if (stops_) return;
    }
    const absl::StatusOr<uint64_t> renewed = Renew();
    if (renewed.ok()) {
      lease_ms = *renewed;
      continue;
    }
    std::fprintf(stderr, "xpuctl grant: the grant was not renewed: %s\n", Text(renewed.status()).c_str());
    // NotFound is also what a missing agent is; that one may come back before the lease ends.
    if (!absl::IsNotFound(renewed.status()) && !absl::IsUnavailable(renewed.status())) return;
  }
}

absl::Status AgentGrant::Return() {
  StopRenewals();
  messages::ReturnRequest request;
  request.set_grant(granted_.grant());
  return Call(socket_, &messages::Grants::Stub::Return, request, kReturnTimeout).status();
}

}  // namespace xpud::xpuctl
