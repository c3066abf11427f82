#include "tools/xpuctl/control_client.h"

#include <grpcpp/create_channel.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/mutex.h"
#include "proto/base/status_macros.h"
#include "proto/base/text.h"
#include "sdk/client/address.h"
#include "sdk/client/remote.h"
#include "sdk/remote/credentials.h"

namespace xpud::xpuctl {
namespace {

constexpr std::chrono::seconds kLimit{5};
constexpr uint32_t kWaitMs = 500;  // for what comes next: Ctrl-C is heard after it

// Ends a call that takes longer. By the steady clock: gRPC's own deadlines wait by the wall clock, and
// whoever sets that would end calls, or prolong them.
class TimeLimit {
 public:
  explicit TimeLimit(grpc::ClientContext& context) : watcher_([this, &context] { Watch(context); }) {}
  ~TimeLimit() {
    {
      MutexLock lock(mutex_);
      done_ = true;
      changed_.NotifyAll();
    }
    watcher_.join();
  }
  TimeLimit(const TimeLimit&) = delete;
  TimeLimit& operator=(const TimeLimit&) = delete;

 private:
  void Watch(grpc::ClientContext& context) {
    const auto end = std::chrono::steady_clock::now() + kLimit;
    MutexLock lock(mutex_);
    while (!done_) {
      const auto rest = end - std::chrono::steady_clock::now();
      if (rest <= rest.zero()) return context.TryCancel();
      changed_.WaitFor(mutex_, rest);
    }
  }

  Mutex mutex_;
  CondVar changed_;
  bool done_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread watcher_;  // last: it uses the others
};

}  // namespace

absl::StatusOr<ControlClient> ControlClient::ConnectRemote(const std::string& address) {
  ASSIGN_OR_RETURN(const remote::Credentials credentials, remote::ClientCredentials());
  auto channel = grpc::CreateCustomChannel(address, credentials.channel, remote::ChannelArguments());
  return ControlClient(address, credentials.token, v1::Control::NewStub(channel));
}

absl::StatusOr<ControlClient> ControlClient::Connect(const std::string& address) {
  const std::string wanted = address.empty() ? client::EnvironmentAddress() : address;
  if (client::IsRemoteAddress(wanted)) return ConnectRemote(wanted);
  ASSIGN_OR_RETURN(const std::string socket, client::FindDaemonSocket(address));
  const std::string path = std::filesystem::path(socket).replace_filename("control.sock").string();
  auto channel = grpc::CreateChannel("unix:" + path, grpc::InsecureChannelCredentials());
  return ControlClient(path, "", v1::Control::NewStub(channel));
}

template <typename Request, typename Response>
absl::StatusOr<Response> ControlClient::Call(grpc::Status (v1::Control::Stub::*method)(grpc::ClientContext*,
                                                                                       const Request&,
                                                                                       Response*),
                                             const Request& request) {
  grpc::ClientContext context;
  if (!token_.empty()) context.AddMetadata("authorization", absl::StrCat("Bearer ", token_));
  Response response;
  grpc::Status status;
  {
    const TimeLimit limit(context);
    status = (stub_.get()->*method)(&context, request, &response);
  }
  if (status.ok()) return response;
  if (status.error_code() == grpc::StatusCode::CANCELLED) {
    return absl::DeadlineExceededError(absl::StrCat("the daemon's control plane at ", path_,
                                                    " did not answer within ", kLimit.count(), " s"));
  }
  return absl::Status(
      static_cast<absl::StatusCode>(status.error_code()),
      absl::StrCat("the daemon's control plane at ", path_, " says: ", status.error_message()));
}

absl::StatusOr<v1::GetStatusResponse> ControlClient::GetStatus() {
  return Call(&v1::Control::Stub::GetStatus);
}
absl::StatusOr<v1::ListDevicesResponse> ControlClient::ListDevices() {
  return Call(&v1::Control::Stub::ListDevices);
}
absl::StatusOr<v1::ListSessionsResponse> ControlClient::ListSessions() {
  return Call(&v1::Control::Stub::ListSessions);
}
absl::StatusOr<v1::GetVersionResponse> ControlClient::GetVersion() {
  return Call(&v1::Control::Stub::GetVersion);
}

absl::StatusOr<v1::ListQuotasResponse> ControlClient::ListQuotas() {
  return Call(&v1::Control::Stub::ListQuotas);
}
absl::StatusOr<v1::ListQuotasResponse> ControlClient::SetQuota(const v1::SetQuotaRequest& request) {
  return Call(&v1::Control::Stub::SetQuota, request);
}

absl::StatusOr<v1::Session> ControlClient::CloseSession(uint64_t session) {
  v1::CloseSessionRequest request;
  request.set_session(session);
  return Call(&v1::Control::Stub::CloseSession, request);
}
absl::StatusOr<v1::SetDrainResponse> ControlClient::SetDrain(bool drained) {
  v1::SetDrainRequest request;
  request.set_drained(drained);
  return Call(&v1::Control::Stub::SetDrain, request);
}
absl::StatusOr<v1::GetConfigResponse> ControlClient::GetConfig() {
  return Call(&v1::Control::Stub::GetConfig);
}
absl::StatusOr<v1::ListLogResponse> ControlClient::ListLog(uint64_t after, bool wait,
                                                           const std::string& level) {
  v1::ListLogRequest request;
  request.set_after(after);
  request.set_level(level);
  if (wait) request.set_wait_ms(kWaitMs);
  return Call(&v1::Control::Stub::ListLog, request);
}
absl::StatusOr<v1::ListEventsResponse> ControlClient::ListEvents(uint64_t after, bool wait) {
  v1::ListEventsRequest request;
  request.set_after(after);
  if (wait) request.set_wait_ms(kWaitMs);
  return Call(&v1::Control::Stub::ListEvents, request);
}

int Report(const absl::Status& status) {
  const std::string_view text(status.message().data(), status.message().size());
  std::fprintf(stderr, "xpuctl: %s\n", PrintableText(text).c_str());
  return absl::IsNotFound(status) ? kNoDaemon : kError;
}

}  // namespace xpud::xpuctl
