#include "tools/xpuctl/control_client.h"

#include <grpcpp/create_channel.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"
#include "proto/base/text.h"
#include "sdk/client/address.h"

namespace xpud::xpuctl {
namespace {

constexpr std::chrono::seconds kDeadline{5};

}  // namespace

absl::StatusOr<ControlClient> ControlClient::Connect(const std::string& address) {
  ASSIGN_OR_RETURN(const std::string socket, client::FindDaemonSocket(address));
  const std::string path = std::filesystem::path(socket).replace_filename("control.sock").string();
  auto channel = grpc::CreateChannel("unix:" + path, grpc::InsecureChannelCredentials());
  return ControlClient(path, v1::Control::NewStub(channel));
}

template <typename Request, typename Response>
absl::StatusOr<Response> ControlClient::Call(grpc::Status (v1::Control::Stub::*method)(grpc::ClientContext*,
                                                                                       const Request&,
                                                                                       Response*),
                                             const Request& request) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kDeadline);
  Response response;
  const grpc::Status status = (stub_.get()->*method)(&context, request, &response);
  if (status.ok()) return response;
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

int Report(const absl::Status& status) {
  const std::string_view text(status.message().data(), status.message().size());
  std::fprintf(stderr, "xpuctl: %s\n", PrintableText(text).c_str());
  return absl::IsNotFound(status) ? kNoDaemon : kError;
}

}  // namespace xpud::xpuctl
