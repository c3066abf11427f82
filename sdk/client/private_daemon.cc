#include "sdk/client/private_daemon.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <fstream>
#include <thread>

#include "absl/strings/str_cat.h"
#include "proto/base/descriptor_error.h"
#include "proto/base/status_macros.h"
#include "sdk/client/connect.h"
#include "sdk/client/helper_process.h"

namespace xpud::client {
namespace {

constexpr char kIdleSeconds[] = "60";  // a private daemon ends this long after its last client

// Held while a daemon is started; the second process waits here and then finds the first one's daemon.
absl::StatusOr<UniqueFd> LockStart(const std::string& directory) {
  UniqueFd lock(
      open(absl::StrCat(directory, "/start.lock").c_str(), O_CREAT | O_RDWR | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!lock.valid() || flock(lock.get(), LOCK_EX) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot lock ", directory, "/start.lock"));
  }
  return lock;
}

std::string LastLogLine(const std::string& path) {
  std::ifstream log(path);
  std::string line, last;
  while (std::getline(log, line)) {
    if (!line.empty()) last = line;
  }
  return last;
}

enum class Start { kReady, kEnded, kSlow };

// kReady when the daemon wrote its ready byte, kEnded when it ended without one, kSlow when the time ran out.
Start AwaitReady(const UniqueFd& ready, std::chrono::milliseconds timeout) {
  const auto limit = std::chrono::steady_clock::now() + timeout;
  while (std::chrono::steady_clock::now() < limit) {
    pollfd poll_ready = {ready.get(), POLLIN, 0};
    if (poll(&poll_ready, 1, 50) <= 0) continue;
    char byte;
    return read(ready.get(), &byte, 1) == 1 ? Start::kReady : Start::kEnded;
  }
  return Start::kSlow;
}

absl::Status NotStarted(Start start, std::chrono::nanoseconds passed, const std::string& log) {
  const std::string last = LastLogLine(log);
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(passed).count();
  return absl::UnavailableError(
      absl::StrCat(start == Start::kEnded ? "the xpud daemon ended while it started, after "
                                          : "the xpud daemon did not start within ",
                   ms, " ms: ", last.empty() ? "it logged nothing" : last, " (", log, ")"));
}

}  // namespace

absl::StatusOr<PrivateDaemon> StartPrivateDaemon(const std::string& directory,
                                                 std::chrono::milliseconds timeout) {
  PrivateDaemon daemon;
  daemon.address = absl::StrCat(directory, "/xpud.sock");
  ASSIGN_OR_RETURN(const UniqueFd lock, LockStart(directory));
  if (auto socket = ConnectSocket(daemon.address); socket.ok()) {
    daemon.socket = *std::move(socket);
    return daemon;
  }
  ASSIGN_OR_RETURN(const std::string binary, FindBinary("xpud", "XPUD_DAEMON"));
  const auto began = std::chrono::steady_clock::now();
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return DescriptorError("pipe2");
  UniqueFd ready(ends[0]), ready_child(ends[1]);
  const std::string log = absl::StrCat(directory, "/xpud.log");
  RETURN_IF_ERROR(RunInBackground(
      binary,
      {"--socket", daemon.address, "--exit-when-idle", kIdleSeconds, "--ready-fd", "3", "--background"}, log,
      ready_child.get()));
  ready_child.Reset();
  if (const Start start = AwaitReady(ready, timeout); start != Start::kReady)
    return NotStarted(start, std::chrono::steady_clock::now() - began, log);
  ASSIGN_OR_RETURN(daemon.socket, ConnectSocket(daemon.address));
  daemon.started_here = true;
  std::fprintf(stderr, "xpud: started a private daemon at %s; it ends %s s after its last client\n",
               daemon.address.c_str(), kIdleSeconds);
  return daemon;
}

}  // namespace xpud::client
