#include "daemon/telemetry/notifier.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"

namespace xpud::telemetry {
namespace {

std::string TakeVariable(const char* name) {
  const char* const found = std::getenv(name);
  const std::string value = found == nullptr ? "" : found;
  unsetenv(name);
  return value;
}

// `name` is a path or, with '@', an abstract address.
absl::StatusOr<UniqueFd> Connect(const std::string& name) {
  sockaddr_un address = {};
  if ((name[0] != '/' && name[0] != '@') || name.size() >= sizeof(address.sun_path))
    return absl::InvalidArgumentError(
        absl::StrCat("NOTIFY_SOCKET is ", name, ", which is not a unix socket"));
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, name.data(), name.size());
  if (name[0] == '@') address.sun_path[0] = '\0';
  const size_t size = offsetof(sockaddr_un, sun_path) + name.size() + (name[0] == '@' ? 0 : 1);
  UniqueFd fd(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const timeval limit = {.tv_sec = 1, .tv_usec = 0};
  if (!fd.valid() || setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit)) != 0 ||
      connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), static_cast<socklen_t>(size)) != 0)
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot connect to NOTIFY_SOCKET ", name));
  return fd;
}

// Returns nullopt if the variables are meant for another process, for instance our parent.
std::optional<std::chrono::microseconds> WatchdogOf(const std::string& microseconds, const std::string& pid) {
  int64_t count = 0, meant = getpid();
  if (!absl::SimpleAtoi(microseconds, &count) || count <= 0) return std::nullopt;
  if (!pid.empty() && !absl::SimpleAtoi(pid, &meant)) return std::nullopt;
  if (meant != getpid()) return std::nullopt;
  return std::chrono::microseconds(count);
}

}  // namespace

absl::StatusOr<Notifier> Notifier::FromEnvironment() {
  const std::string name = TakeVariable("NOTIFY_SOCKET");
  const std::string microseconds = TakeVariable("WATCHDOG_USEC"), pid = TakeVariable("WATCHDOG_PID");
  Notifier notifier;
  if (name.empty()) return notifier;
  ASSIGN_OR_RETURN(notifier.socket_, Connect(name));
  notifier.watchdog_ = WatchdogOf(microseconds, pid);
  return notifier;
}

void Notifier::Notify(std::string_view lines) const {
  if (socket_.valid()) (void)send(socket_.get(), lines.data(), lines.size(), MSG_NOSIGNAL);
}

}  // namespace xpud::telemetry
