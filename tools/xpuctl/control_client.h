// The connection to a daemon's control plane: one gRPC channel, on control.sock beside the socket that
// clients use, or to an xpud-gateway, which hands calls on. One thread.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "proto/control/xpud.grpc.pb.h"
#include "tools/xpuctl/command.h"

namespace xpud::xpuctl {

class ControlClient {
 public:
  // NotFound: no daemon is running. `address` as Invocation::address: a socket, or HOST:PORT of a gateway, to
  // which this one shows who it is as $XPUD_TOKEN_FILE and $XPUD_TLS_* say.
  static absl::StatusOr<ControlClient> Connect(const std::string& address);

  absl::StatusOr<v1::GetStatusResponse> GetStatus();
  absl::StatusOr<v1::ListDevicesResponse> ListDevices();
  absl::StatusOr<v1::ListSessionsResponse> ListSessions();
  absl::StatusOr<v1::GetVersionResponse> GetVersion();
  absl::StatusOr<v1::ListQuotasResponse> ListQuotas();
  absl::StatusOr<v1::ListQuotasResponse> SetQuota(const v1::SetQuotaRequest& request);
  absl::StatusOr<v1::Session> CloseSession(uint64_t session);
  absl::StatusOr<v1::SetDrainResponse> SetDrain(bool drained);
  absl::StatusOr<v1::GetConfigResponse> GetConfig();
  // As ListEvents, of lines of a level or worse.
  absl::StatusOr<v1::ListLogResponse> ListLog(uint64_t after, bool wait, const std::string& level);
  // A few of those after the number `after`; where there are none it waits for the next one, but not for
  // long.
  absl::StatusOr<v1::ListEventsResponse> ListEvents(uint64_t after, bool wait);

 private:
  ControlClient(std::string path, std::string token, std::unique_ptr<v1::Control::Stub> stub)
      : path_(std::move(path)), token_(std::move(token)), stub_(std::move(stub)) {}
  static absl::StatusOr<ControlClient> ConnectRemote(const std::string& address);
  template <typename Request, typename Response>
  absl::StatusOr<Response> Call(grpc::Status (v1::Control::Stub::*method)(grpc::ClientContext*,
                                                                          const Request&, Response*),
                                const Request& request = {});

  std::string path_;
  std::string token_;  // for a gateway; empty: none
  std::unique_ptr<v1::Control::Stub> stub_;
};

// Says on stderr what went wrong; the exit code for it.
int Report(const absl::Status& status);

}  // namespace xpud::xpuctl
