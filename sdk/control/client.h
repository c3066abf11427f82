// A client of a daemon's control plane, for operators' tools and agents: status, sessions, quotas, drain,
// events, logs. It connects to control.sock beside the socket that sessions use, or to an xpud-gateway, which
// forwards calls. A user who may not open control.sock asks for a view at the socket that sessions use, which
// shows devices and that user's sessions, and refuses the rest with PermissionDenied. Thread-compatible: one
// thread at a time.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "proto/base/unique_fd.h"
#include "proto/control/xpud.pb.h"

namespace grpc {
class ChannelInterface;
}

namespace xpud::control {

// A call fails with DeadlineExceeded if the daemon does not answer within this time.
inline constexpr std::chrono::seconds kCallTimeout{5};
inline constexpr std::chrono::seconds kEndTimeout{60};

class Client {
 public:
  // `address`: the daemon's socket, HOST:PORT of a gateway, or empty to find the daemon as sessions do. A
  // gateway is shown the credentials in $XPUD_TOKEN_FILE and $XPUD_TLS_*. NotFound: no daemon is running.
  static absl::StatusOr<Client> Connect(const std::string& address);

  absl::StatusOr<v1::GetStatusResponse> GetStatus();
  absl::StatusOr<v1::ListDevicesResponse> ListDevices();
  absl::StatusOr<v1::ListSessionsResponse> ListSessions();
  absl::StatusOr<v1::GetVersionResponse> GetVersion();
  absl::StatusOr<v1::ListMemoryResponse> ListMemory();
  absl::StatusOr<v1::ListQuotasResponse> ListQuotas();
  absl::StatusOr<v1::ListQuotasResponse> SetQuota(const v1::SetQuotaRequest& request);
  absl::StatusOr<v1::Claim> CreateClaim(const v1::Claim& claim);
  absl::StatusOr<v1::Claim> UpdateClaim(const v1::UpdateClaimRequest& request);
  // Waits up to `limit` until the memory of the claim's sessions is free.
  absl::StatusOr<v1::DeleteClaimResponse> DeleteClaim(const std::string& key,
                                                      std::chrono::seconds limit = kEndTimeout);
  // `only_granted`: what was granted, which asks no device.
  absl::StatusOr<v1::ListClaimsResponse> ListClaims(bool only_granted = false);
  absl::StatusOr<v1::Session> CloseSession(uint64_t session);
  absl::StatusOr<v1::SetNiceResponse> SetNice(uint64_t session, uint32_t nice);
  absl::StatusOr<v1::SetDrainResponse> SetDrain(bool drained);
  absl::StatusOr<v1::GetConfigResponse> GetConfig();
  absl::StatusOr<v1::StartProfileResponse> StartProfile(const v1::StartProfileRequest& request);
  absl::StatusOr<v1::StopProfileResponse> StopProfile(const v1::ProfileSelection& selection);
  absl::StatusOr<v1::ListProfilesResponse> ListProfiles();
  // Some commands from number `from` on.
  absl::StatusOr<v1::ReadProfileResponse> ReadProfile(uint64_t session, uint32_t device, uint64_t from);
  // Some samples of a device's memory from number `from` on. Unimplemented: an older daemon.
  absl::StatusOr<v1::ReadMemoryHistoryResponse> ReadMemoryHistory(uint32_t device, uint64_t from);
  absl::StatusOr<v1::ReadFlightResponse> ReadFlight(uint64_t session, uint32_t commands);
  // Up to 64 log lines of `level` or worse after number `after`. With `wait`, waits up to 0.5 s for the next
  // one when there is none.
  absl::StatusOr<v1::ListLogResponse> ListLog(uint64_t after, bool wait, const std::string& level);
  // Up to 64 events after number `after`, as ListLog. `wait`: how long to wait for one, less than
  // kCallTimeout.
  absl::StatusOr<v1::ListEventsResponse> ListEvents(uint64_t after, bool wait) {
    return ListEvents(after, wait ? kWait : std::chrono::milliseconds(0));
  }
  absl::StatusOr<v1::ListEventsResponse> ListEvents(uint64_t after, std::chrono::milliseconds wait);

 private:
  // Short, so that callers react to Ctrl-C between two calls.
  static constexpr std::chrono::milliseconds kWait{500};

  Client(std::string address, std::string token, std::shared_ptr<grpc::ChannelInterface> channel)
      : address_(std::move(address)), token_(std::move(token)), channel_(std::move(channel)) {}
  static absl::StatusOr<Client> ConnectRemote(const std::string& address);
  static absl::StatusOr<Client> ConnectView(const std::string& socket);
  template <typename Method, typename Request>
  auto Call(Method method, const Request& request, std::chrono::seconds limit = kCallTimeout);

  std::string address_;
  std::string token_;               // shown to a gateway; empty for a local daemon
  std::shared_ptr<UniqueFd> view_;  // while it is open, the daemon answers a user who is no operator
  std::shared_ptr<grpc::ChannelInterface> channel_;
};

}  // namespace xpud::control
