#include "sdk/client/connect.h"

#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>
#include <algorithm>

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "proto/base/descriptor_error.h"
#include "proto/base/status_macros.h"
#include "proto/base/unix_address.h"
#include "proto/transport/shm_client.h"
#include "sdk/client/address.h"
#include "sdk/client/client_name.h"
#include "sdk/client/private_daemon.h"
#include "sdk/client/remote.h"

namespace xpud::client {
namespace {

absl::Status SetReceiveTimeout(int socket, std::chrono::milliseconds timeout) {
  const timeval value = {timeout.count() / 1000, (timeout.count() % 1000) * 1000};
  if (setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &value, sizeof(value)) != 0) {
    return absl::ErrnoToStatus(errno, "setsockopt(SO_RCVTIMEO) failed");
  }
  return absl::OkStatus();
}

absl::StatusOr<Connection> Handshake(UniqueFd socket, const std::string& address,
                                     const ConnectOptions& options,
                                     const std::optional<std::string>& tenant = std::nullopt) {
  transport::Hello hello = {transport::kHelloMagic, wire::kOldestVersion, wire::kNewestVersion, {}};
  transport::SetText(hello.client_name, ClientName(options.client_name));
  RETURN_IF_ERROR(SetReceiveTimeout(socket.get(), options.timeout));
  if (tenant && !tenant->empty()) {
    transport::Vouch vouch = {transport::kVouchMagic, 0, {}};
    transport::SetText(vouch.tenant, *tenant);
    (void)transport::SendMessage(socket.get(), std::as_bytes(std::span(&vouch, 1)));
  }
  // Where the daemon has no place for this client, it says so and does not wait for the greeting.
  (void)transport::SendMessage(socket.get(), std::as_bytes(std::span(&hello, 1)));
  Connection connection;
  const absl::Status received =
      transport::ReceiveMessage(socket.get(), std::as_writable_bytes(std::span(&connection.welcome, 1)));
  if (!received.ok()) {
    return absl::Status(received.code(), absl::StrCat("the xpud daemon at ", address,
                                                      " did not answer: ", received.message()));
  }
  const transport::Welcome& welcome = connection.welcome;
  if (welcome.magic != transport::kHelloMagic)
    return absl::InternalError(absl::StrCat(address, " is not an xpud daemon"));
  if (welcome.version == 0) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the xpud daemon at ", address, " refused this client: ", transport::GetText(welcome.text)));
  }
  if (welcome.version < wire::kOldestVersion || welcome.version > wire::kNewestVersion) {
    return absl::FailedPreconditionError(
        absl::StrCat("the xpud daemon at ", address, " speaks protocol version ", welcome.version,
                     ", this client ", wire::kOldestVersion, " to ", wire::kNewestVersion));
  }
  connection.socket = std::make_shared<const transport::SessionSocket>(std::move(socket));
  connection.is_relayed = tenant || IsRemoteAddress(address);
  connection.address = address;
  return connection;
}

}  // namespace

absl::StatusOr<UniqueFd> ConnectSocket(const std::string& path) {
  ASSIGN_OR_RETURN(const sockaddr_un address, UnixAddress(path));
  UniqueFd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (!socket.valid()) return DescriptorError("socket");
  if (connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0) return socket;
  if (errno == ENOENT || errno == ECONNREFUSED || errno == ENOTDIR) {
    return absl::NotFoundError(absl::StrCat("no xpud daemon listens at ", path));
  }
  if (errno == EACCES || errno == EPERM) {
    return absl::PermissionDeniedError(
        absl::StrCat("no permission to use the xpud daemon at ", path,
                     "; ask for membership of its group, or set XPUD_ADDRESS"));
  }
  return absl::ErrnoToStatus(errno, absl::StrCat("connecting to ", path, " failed"));
}

absl::StatusOr<View> ConnectView(const std::string& path, std::chrono::milliseconds timeout) {
  View view;
  ASSIGN_OR_RETURN(view.socket, ConnectSocket(path));
  RETURN_IF_ERROR(SetReceiveTimeout(view.socket.get(), timeout));
  transport::Hello hello = {};
  hello.magic = transport::kViewMagic;
  (void)transport::SendMessage(view.socket.get(), std::as_bytes(std::span(&hello, 1)));
  transport::Answer answer = {};
  const absl::Status received = transport::ReceiveMessage(
      view.socket.get(), std::as_writable_bytes(std::span(&answer, 1)), std::span(&view.calls, 1));
  if (!received.ok()) {
    return absl::PermissionDeniedError(
        absl::StrCat("only operators may see the xpud daemon at ", path,
                     "; it does not show users their own sessions: ", received.message()));
  }
  if (answer.code != 0)
    return absl::Status(static_cast<absl::StatusCode>(answer.code), transport::GetText(answer.text));
  if (!view.calls.valid()) return absl::InternalError(absl::StrCat(path, " is not an xpud daemon"));
  return view;
}

absl::StatusOr<Connection> Connect(const ConnectOptions& options, const std::optional<std::string>& tenant) {
  const DaemonPlace place = FindDaemonPlace(options.address);
  const bool is_remote = IsRemoteAddress(place.address);
  absl::StatusOr<UniqueFd> socket =
      is_remote ? StartConnector(place.address, options) : ConnectToPlace(place);
  // The daemon was not asked yet: a missing xpud-connect must not look like a missing daemon.
  if (is_remote && !socket.ok()) {
    return absl::Status(socket.status().code(), absl::StrCat("cannot reach the xpud daemon at ",
                                                             place.address, ": ", socket.status().message()));
  }
  if (socket.ok()) return Handshake(*std::move(socket), place.address, options, tenant);
  const bool may_start = options.start_daemon && place.whose == DaemonPlace::Whose::kPrivate;
  if (!absl::IsNotFound(socket.status()) || !may_start) return socket.status();
  RETURN_IF_ERROR(MakeUserDirectory(place.folder));
  ASSIGN_OR_RETURN(PrivateDaemon started, StartPrivateDaemon(place.folder, options.timeout));
  ASSIGN_OR_RETURN(Connection connection, Handshake(std::move(started.socket), started.address, options));
  connection.started_daemon = started.started_here;
  return connection;
}

absl::StatusOr<std::unique_ptr<transport::ClientTransport>> OpenDevice(const Connection& connection,
                                                                       uint32_t device, uint64_t* peers) {
  using Waits = transport::ShmClient::Waits;
  ASSIGN_OR_RETURN(transport::DeviceFds fds, connection.socket->OpenDevice(device, peers));
  const bool gpu = transport::GetText(connection.welcome.devices[device].kind) == "gpu";
  const Waits waits = connection.is_relayed ? Waits::kForRelay : gpu ? Waits::kForDevice : Waits::kForDaemon;
  return transport::ShmClient::Create(connection.socket, std::move(fds), connection.welcome.staging_bytes,
                                      waits);
}

}  // namespace xpud::client
