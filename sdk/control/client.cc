#include "sdk/control/client.h"

#include <fcntl.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/create_channel_posix.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <filesystem>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/mutex.h"
#include "proto/base/start_thread.h"
#include "proto/base/status_macros.h"
#include "proto/control/xpud.grpc.pb.h"
#include "proto/remote/credentials.h"
#include "sdk/client/address.h"
#include "sdk/client/connect.h"
#include "sdk/client/remote.h"

namespace xpud::control {
namespace {

constexpr int kGrpcThreads = 8;  // that gRPC may start for a channel; without them it aborts or hangs
// How long a channel waits before it connects again. gRPC's default grows to two minutes, for servers that
// are far.
constexpr int kFirstReconnectMs = 50, kMaxReconnectMs = 500;

// Cancels a call after a time of the steady clock. gRPC's own deadlines follow the wall clock: setting
// it would end calls early or late.
class TimeLimit {
 public:
  TimeLimit(grpc::ClientContext& context, std::chrono::seconds limit) : limit_(limit) {
    auto started = StartThread("xpud-limit", [this, &context] { Watch(context); });
    status_ = started.status();
    if (started.ok()) watcher_ = *std::move(started);
  }
  // ResourceExhausted if there is no thread to watch the time.
  const absl::Status& status() const { return status_; }
  ~TimeLimit() {
    {
      MutexLock lock(mutex_);
      done_ = true;
      changed_.NotifyAll();
    }
    if (watcher_.joinable()) watcher_.join();
  }
  TimeLimit(const TimeLimit&) = delete;
  TimeLimit& operator=(const TimeLimit&) = delete;

 private:
  void Watch(grpc::ClientContext& context) {
    const auto end = std::chrono::steady_clock::now() + limit_;
    MutexLock lock(mutex_);
    while (!done_) {
      const auto rest = end - std::chrono::steady_clock::now();
      if (rest <= rest.zero()) return context.TryCancel();
      changed_.WaitFor(mutex_, rest);
    }
  }

  const std::chrono::seconds limit_;
  Mutex mutex_;
  CondVar changed_;
  bool done_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status status_;
  std::thread watcher_;  // last member: the thread uses the others
};

}  // namespace

absl::StatusOr<Client> Client::ConnectRemote(const std::string& address) {
  RETURN_IF_ERROR(client::CheckPort(address));
  RETURN_IF_ERROR(CheckThreadsLeft(kGrpcThreads, "gRPC"));
  ASSIGN_OR_RETURN(const remote::Credentials credentials, remote::ClientCredentials());
  return Client(address, credentials.token,
                grpc::CreateCustomChannel(address, credentials.channel, remote::ChannelArguments()));
}

absl::StatusOr<Client> Client::ConnectView(const std::string& socket) {
  RETURN_IF_ERROR(CheckThreadsLeft(kGrpcThreads, "gRPC"));
  ASSIGN_OR_RETURN(client::View view, client::ConnectView(socket, kCallTimeout));
  fcntl(view.calls.get(), F_SETFL, O_NONBLOCK);
  Client client(socket, "", grpc::CreateInsecureChannelFromFd("xpud", view.calls.Release()));
  client.view_ = std::make_shared<UniqueFd>(std::move(view.socket));
  return client;
}

absl::StatusOr<Client> Client::Connect(const std::string& address) {
  const std::string wanted = address.empty() ? client::EnvironmentAddress() : address;
  if (client::IsRemoteAddress(wanted)) return ConnectRemote(wanted);
  const std::string socket = client::FindDaemonPlace(address).address;
  const std::string path = std::filesystem::path(socket).replace_filename("control.sock").string();
  const bool may_control = faccessat(AT_FDCWD, path.c_str(), R_OK | W_OK, AT_EACCESS) == 0 || errno != EACCES;
  // An operator need not be one of the clients' group.
  if (absl::Status found = client::FindDaemonSocket(address).status();
      !found.ok() && !(absl::IsPermissionDenied(found) && may_control))
    return found;
  if (!may_control) return ConnectView(socket);
  RETURN_IF_ERROR(CheckThreadsLeft(kGrpcThreads, "gRPC"));
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, kFirstReconnectMs);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, kMaxReconnectMs);
  return Client(path, "",
                grpc::CreateCustomChannel("unix:" + path, grpc::InsecureChannelCredentials(), arguments));
}

// The reply type of a method of the stub.
template <typename Request, typename Response>
Response ResponseOf(grpc::Status (v1::Control::Stub::*)(grpc::ClientContext*, const Request&, Response*));

template <typename Method, typename Request>
auto Client::Call(Method method, const Request& request, std::chrono::seconds limit) {
  using Response = decltype(ResponseOf(method));
  grpc::ClientContext context;
  if (!token_.empty()) context.AddMetadata("authorization", absl::StrCat("Bearer ", token_));
  v1::Control::Stub stub(channel_);
  Response response;
  grpc::Status status;
  {
    const TimeLimit watched(context, limit);
    if (!watched.status().ok()) return absl::StatusOr<Response>(watched.status());
    status = (stub.*method)(&context, request, &response);
  }
  if (status.ok()) return absl::StatusOr<Response>(std::move(response));
  if (status.error_code() == grpc::StatusCode::CANCELLED) {
    return absl::StatusOr<Response>(absl::DeadlineExceededError(absl::StrCat(
        "the daemon's control plane at ", address_, " did not answer within ", limit.count(), " s")));
  }
  return absl::StatusOr<Response>(absl::Status(
      static_cast<absl::StatusCode>(status.error_code()),
      absl::StrCat("the daemon's control plane at ", address_, " says: ", status.error_message())));
}

absl::StatusOr<v1::GetStatusResponse> Client::GetStatus() {
  return Call(&v1::Control::Stub::GetStatus, v1::GetStatusRequest());
}
absl::StatusOr<v1::ListDevicesResponse> Client::ListDevices() {
  return Call(&v1::Control::Stub::ListDevices, v1::ListDevicesRequest());
}
absl::StatusOr<v1::ListSessionsResponse> Client::ListSessions() {
  return Call(&v1::Control::Stub::ListSessions, v1::ListSessionsRequest());
}
absl::StatusOr<v1::GetVersionResponse> Client::GetVersion() {
  return Call(&v1::Control::Stub::GetVersion, v1::GetVersionRequest());
}
absl::StatusOr<v1::ListMemoryResponse> Client::ListMemory() {
  return Call(&v1::Control::Stub::ListMemory, v1::ListMemoryRequest());
}
absl::StatusOr<v1::ListQuotasResponse> Client::ListQuotas() {
  return Call(&v1::Control::Stub::ListQuotas, v1::ListQuotasRequest());
}
absl::StatusOr<v1::ListQuotasResponse> Client::SetQuota(const v1::SetQuotaRequest& request) {
  return Call(&v1::Control::Stub::SetQuota, request);
}
absl::StatusOr<v1::Claim> Client::CreateClaim(const v1::Claim& claim) {
  v1::CreateClaimRequest request;
  *request.mutable_claim() = claim;
  return Call(&v1::Control::Stub::CreateClaim, request);
}
absl::StatusOr<v1::Claim> Client::UpdateClaim(const v1::UpdateClaimRequest& request) {
  return Call(&v1::Control::Stub::UpdateClaim, request);
}
absl::StatusOr<v1::DeleteClaimResponse> Client::DeleteClaim(const std::string& key,
                                                            std::chrono::seconds limit) {
  v1::DeleteClaimRequest request;
  request.set_key(key);
  return Call(&v1::Control::Stub::DeleteClaim, request, limit);
}
absl::StatusOr<v1::ListClaimsResponse> Client::ListClaims(bool only_granted) {
  v1::ListClaimsRequest request;
  request.set_only_granted(only_granted);
  return Call(&v1::Control::Stub::ListClaims, request);
}
absl::StatusOr<v1::GetConfigResponse> Client::GetConfig() {
  return Call(&v1::Control::Stub::GetConfig, v1::GetConfigRequest());
}

absl::StatusOr<v1::Session> Client::CloseSession(uint64_t session) {
  v1::CloseSessionRequest request;
  request.set_session(session);
  return Call(&v1::Control::Stub::CloseSession, request);
}

absl::StatusOr<v1::SetNiceResponse> Client::SetNice(uint64_t session, uint32_t nice) {
  v1::SetNiceRequest request;
  request.set_session(session);
  request.set_nice(nice);
  return Call(&v1::Control::Stub::SetNice, request);
}

absl::StatusOr<v1::StartProfileResponse> Client::StartProfile(const v1::StartProfileRequest& request) {
  return Call(&v1::Control::Stub::StartProfile, request);
}
absl::StatusOr<v1::StopProfileResponse> Client::StopProfile(const v1::ProfileSelection& selection) {
  v1::StopProfileRequest request;
  *request.mutable_selection() = selection;
  return Call(&v1::Control::Stub::StopProfile, request);
}
absl::StatusOr<v1::ListProfilesResponse> Client::ListProfiles() {
  return Call(&v1::Control::Stub::ListProfiles, v1::ListProfilesRequest());
}
absl::StatusOr<v1::ReadProfileResponse> Client::ReadProfile(uint64_t session, uint32_t device,
                                                            uint64_t from) {
  v1::ReadProfileRequest request;
  request.set_session(session);
  request.set_device(device);
  request.set_from(from);
  return Call(&v1::Control::Stub::ReadProfile, request);
}
absl::StatusOr<v1::ReadMemoryHistoryResponse> Client::ReadMemoryHistory(uint32_t device, uint64_t from) {
  v1::ReadMemoryHistoryRequest request;
  request.set_device(device);
  request.set_from(from);
  return Call(&v1::Control::Stub::ReadMemoryHistory, request);
}
absl::StatusOr<v1::ReadFlightResponse> Client::ReadFlight(uint64_t session, uint32_t commands) {
  v1::ReadFlightRequest request;
  request.set_session(session);
  request.set_commands(commands);
  return Call(&v1::Control::Stub::ReadFlight, request);
}

absl::StatusOr<v1::SetDrainResponse> Client::SetDrain(bool drained) {
  v1::SetDrainRequest request;
  request.set_drained(drained);
  return Call(&v1::Control::Stub::SetDrain, request);
}

absl::StatusOr<v1::ListLogResponse> Client::ListLog(uint64_t after, bool wait, const std::string& level) {
  v1::ListLogRequest request;
  request.set_after(after);
  request.set_level(level);
  if (wait) request.set_wait_ms(kWait.count());
  return Call(&v1::Control::Stub::ListLog, request);
}

absl::StatusOr<v1::ListEventsResponse> Client::ListEvents(uint64_t after, std::chrono::milliseconds wait) {
  v1::ListEventsRequest request;
  request.set_after(after);
  request.set_wait_ms(static_cast<uint32_t>(wait.count()));
  return Call(&v1::Control::Stub::ListEvents, request);
}

}  // namespace xpud::control
