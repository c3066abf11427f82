#include "daemon/service/handed_sockets.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "proto/base/status_macros.h"

namespace xpud::service {
namespace {

constexpr int kFirst = 3;
constexpr int kMaxSockets = 16;

std::string TakeVariable(const char* name) {
  const char* const found = std::getenv(name);
  std::string value = found == nullptr ? "" : found;
  unsetenv(name);
  return value;
}

int Option(int fd, int name) {
  int value = -1;
  socklen_t size = sizeof(value);
  return getsockopt(fd, SOL_SOCKET, name, &value, &size) == 0 ? value : -1;
}

std::string PathOf(int fd) {
  sockaddr_un address = {};
  socklen_t size = sizeof(address);
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0 ||
      size <= offsetof(sockaddr_un, sun_path))
    return "";
  return {address.sun_path, strnlen(address.sun_path, size - offsetof(sockaddr_un, sun_path))};
}

std::string Words(const char* domain, int type, bool listens, const std::string& path) {
  return absl::StrCat(domain,
                      type == SOCK_STREAM      ? " stream"
                      : type == SOCK_SEQPACKET ? " seqpacket"
                                               : " datagram",
                      " socket that ", listens ? "listens" : "does not listen", path.empty() ? "" : " at ",
                      path);
}

std::string Describe(int fd) {
  const int domain = Option(fd, SO_DOMAIN);
  if (domain < 0) return "no socket";
  return Words(domain == AF_UNIX                         ? "a unix"
               : domain == AF_INET || domain == AF_INET6 ? "an internet"
                                                         : "a strange",
               Option(fd, SO_TYPE), Option(fd, SO_ACCEPTCONN) == 1, domain == AF_UNIX ? PathOf(fd) : "");
}

// Stores the socket under its name if that is one that may be handed over.
absl::Status Keep(UniqueFd fd, const std::string& name, const std::string& client_path,
                  HandedSockets& sockets) {
  const bool clients = name == "clients";
  const auto refuse = [&](const std::string& why) {
    return absl::InvalidArgumentError(
        absl::StrCat("the service manager hands over socket ", fd.get(), ", \"", name, "\", ", why));
  };
  if (!clients && name != "control") return refuse("and xpud knows \"clients\" and \"control\" only");
  UniqueFd& kept = clients ? sockets.clients : sockets.control;
  if (kept.valid()) return refuse("a second time");
  const std::string wanted = Words("a unix", clients ? SOCK_SEQPACKET : SOCK_STREAM, true,
                                   clients ? client_path : ControlPath(client_path));
  if (const std::string found = Describe(fd.get()); found != wanted)
    return refuse(absl::StrCat("which is ", found, "; it must be ", wanted));
  if (fcntl(fd.get(), F_SETFD, FD_CLOEXEC) != 0 ||
      fcntl(fd.get(), F_SETFL, fcntl(fd.get(), F_GETFL) | O_NONBLOCK) != 0)
    return absl::ErrnoToStatus(errno, "fcntl failed");
  kept = std::move(fd);
  return absl::OkStatus();
}

}  // namespace

std::string ControlPath(const std::string& client_path) {
  return std::filesystem::path(client_path).replace_filename("control.sock").string();
}

absl::StatusOr<HandedSockets> TakeHandedSockets(const std::string& client_path) {
  const std::string pid = TakeVariable("LISTEN_PID"), count_text = TakeVariable("LISTEN_FDS");
  const std::string names_text = TakeVariable("LISTEN_FDNAMES");
  HandedSockets sockets;
  int meant = 0, count = 0;
  if (!absl::SimpleAtoi(pid, &meant) || meant != getpid()) return sockets;
  if (!absl::SimpleAtoi(count_text, &count) || count < 0 || count > kMaxSockets)
    return absl::InvalidArgumentError(
        absl::StrCat("LISTEN_FDS is '", count_text, "', not a number of sockets"));
  std::vector<UniqueFd> fds;
  for (int i = 0; i < count; ++i) fds.emplace_back(kFirst + i);
  const std::vector<std::string> names = absl::StrSplit(names_text, ':', absl::SkipEmpty());
  if (names.size() != fds.size())
    return absl::InvalidArgumentError(absl::StrCat("the service manager hands over ", count, " sockets and ",
                                                   names.size(), " names (LISTEN_FDNAMES='", names_text,
                                                   "')"));
  for (size_t i = 0; i < fds.size(); ++i)
    RETURN_IF_ERROR(Keep(std::move(fds[i]), names[i], client_path, sockets));
  return sockets;
}

}  // namespace xpud::service
