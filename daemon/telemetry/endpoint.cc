#include "daemon/telemetry/endpoint.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <cerrno>
#include <charconv>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"

namespace xpud::telemetry {
namespace {

constexpr std::string_view kLoopback = "127.0.0.1";
constexpr std::string_view kUnix = "unix:";
constexpr int kBacklog = 32;

union Address {
  sockaddr any;
  sockaddr_in v4;
  sockaddr_in6 v6;
};

absl::Status Malformed(std::string_view text) {
  return absl::InvalidArgumentError(absl::StrCat("'", std::string(text),
                                                 "' is not an address for metrics; use HOST:PORT, with "
                                                 "a numeric host or localhost ([::1]:9464), "
                                                 "PORT, which means 127.0.0.1, or unix:PATH"));
}

// Splits [host]:port, host:port, :port or port.
void Split(std::string_view text, std::string_view& host, std::string_view& port) {
  const size_t colon = text.rfind(':');
  host = colon == std::string_view::npos ? std::string_view() : text.substr(0, colon);
  port = colon == std::string_view::npos ? text : text.substr(colon + 1);
  if (host.empty() || host == "localhost") host = kLoopback;
}

bool ParsePort(std::string_view text, in_port_t& out) {
  uint16_t port = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  out = htons(port);
  return error == std::errc() && end == text.data() + text.size() && !text.empty();
}

absl::StatusOr<Address> Parse(std::string_view text) {
  std::string_view host, port;
  Split(text, host, port);
  Address address = {};
  if (host.starts_with('[') && host.ends_with(']')) {
    const std::string inner(host.substr(1, host.size() - 2));
    address.v6.sin6_family = AF_INET6;
    if (ParsePort(port, address.v6.sin6_port) &&
        inet_pton(AF_INET6, inner.c_str(), &address.v6.sin6_addr) == 1)
      return address;
    return Malformed(text);
  }
  address.v4.sin_family = AF_INET;
  if (ParsePort(port, address.v4.sin_port) &&
      inet_pton(AF_INET, std::string(host).c_str(), &address.v4.sin_addr) == 1)
    return address;
  return Malformed(text);
}

socklen_t SizeOf(const Address& address) {
  return address.any.sa_family == AF_INET ? sizeof(address.v4) : sizeof(address.v6);
}

std::string TextOf(const Address& address) {
  char host[INET6_ADDRSTRLEN] = "";
  if (address.any.sa_family == AF_INET) {
    inet_ntop(AF_INET, &address.v4.sin_addr, host, sizeof(host));
    return absl::StrCat(host, ":", ntohs(address.v4.sin_port));
  }
  inet_ntop(AF_INET6, &address.v6.sin6_addr, host, sizeof(host));
  return absl::StrCat("[", host, "]:", ntohs(address.v6.sin6_port));
}

absl::StatusOr<Endpoint> ListenAtPath(std::string_view path) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, path.size());
  UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const mode_t mask = umask(0117);
  const bool bound = fd.valid() &&
                     bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0 &&
                     listen(fd.get(), kBacklog) == 0;
  umask(mask);
  if (!bound) return absl::ErrnoToStatus(errno, absl::StrCat("cannot serve metrics at ", std::string(path)));
  return Endpoint{std::move(fd), absl::StrCat(std::string(kUnix), std::string(path))};
}

}  // namespace

std::string_view UnixPathOf(std::string_view text) {
  return text.starts_with(kUnix) ? text.substr(kUnix.size()) : std::string_view();
}

absl::Status CheckAddress(std::string_view text) {
  if (!text.starts_with(kUnix)) return Parse(text).status();
  const std::string_view path = UnixPathOf(text);
  if (path.starts_with('/') && path.size() < sizeof(sockaddr_un::sun_path)) return absl::OkStatus();
  return Malformed(text);
}

absl::StatusOr<Endpoint> ListenAt(std::string_view text) {
  RETURN_IF_ERROR(CheckAddress(text));
  if (text.starts_with(kUnix)) return ListenAtPath(UnixPathOf(text));
  ASSIGN_OR_RETURN(Address address, Parse(text));
  const auto failed = [&] {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot serve metrics at ", TextOf(address)));
  };
  UniqueFd fd(socket(address.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return failed();
  const int on = 1;  // the next daemon can bind while old connections are in TIME_WAIT
  setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (bind(fd.get(), &address.any, SizeOf(address)) != 0) return failed();
  if (listen(fd.get(), kBacklog) != 0) return failed();
  socklen_t size = sizeof(address);
  if (getsockname(fd.get(), &address.any, &size) != 0) return failed();
  return Endpoint{std::move(fd), TextOf(address)};
}

}  // namespace xpud::telemetry
