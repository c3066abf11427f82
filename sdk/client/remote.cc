#include "sdk/client/remote.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"
#include "sdk/client/private_daemon.h"

extern char** environ;

namespace xpud::client {
namespace {

constexpr int kSocketFd = 3;

absl::StatusOr<int64_t> ReconnectSeconds(const ConnectOptions& options) {
  constexpr char kVariable[] = "XPUD_RECONNECT_SECONDS";
  const char* const text = std::getenv(kVariable);
  if (text == nullptr || *text == '\0') return options.reconnect.count();
  int64_t seconds = 0;
  if (absl::SimpleAtoi(text, &seconds) && seconds >= 0) return seconds;
  return absl::InvalidArgumentError(absl::StrCat(kVariable, " is a number of seconds, not \"", text, "\""));
}

}  // namespace

bool IsRemoteAddress(const std::string& address) {
  const size_t colon = address.rfind(':');
  return address.find('/') == std::string::npos && colon != std::string::npos && colon != 0 &&
         colon + 1 < address.size() &&
         std::all_of(address.begin() + static_cast<ptrdiff_t>(colon) + 1, address.end(), absl::ascii_isdigit);
}

absl::StatusOr<UniqueFd> StartConnector(const std::string& address, const ConnectOptions& options) {
  ASSIGN_OR_RETURN(const int64_t reconnect, ReconnectSeconds(options));
  ASSIGN_OR_RETURN(const std::string binary, FindBinary("xpud-connect", "XPUD_CONNECT"));
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
    return absl::ErrnoToStatus(errno, "socketpair failed");
  UniqueFd here(ends[0]), there(ends[1]);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  // Nothing else of this process's: who reads its output to the end must not wait for another one.
  for (const int fd : {0, 1, 2}) posix_spawn_file_actions_addopen(&actions, fd, "/dev/null", O_RDWR, 0);
  posix_spawn_file_actions_adddup2(&actions, there.get(), kSocketFd);
  // Before our own patience ends, so that we hear why.
  std::vector<std::string> words = {binary, address, absl::StrCat(options.timeout.count() * 9 / 10),
                                    absl::StrCat(reconnect), "--background"};
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  pid_t child;
  const int error = posix_spawn(&child, binary.c_str(), &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) return absl::ErrnoToStatus(error, absl::StrCat("cannot run ", binary));
  int status;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return here;
}

}  // namespace xpud::client
