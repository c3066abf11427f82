#include "sdk/client/private_daemon.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "proto/base/status_macros.h"
#include "sdk/client/connect.h"

extern char** environ;

namespace xpud::client {
namespace {

constexpr char kIdleSeconds[] = "60";  // a private daemon ends this long after its last client

bool IsExecutable(const std::string& path) { return access(path.c_str(), X_OK) == 0; }

std::string OwnDirectory() {
  Dl_info info;
  if (dladdr(reinterpret_cast<void*>(&OwnDirectory), &info) == 0 || info.dli_fname == nullptr) return "";
  std::error_code error;
  return std::filesystem::canonical(info.dli_fname, error).parent_path().string();
}

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

// Runs `binary` with its output in `log` and the write end of a pipe as fd 3. The child puts itself in the
// background.
absl::Status Spawn(const std::string& binary, const std::string& socket, const std::string& log, int ready) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, 1, log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  posix_spawn_file_actions_adddup2(&actions, 1, 2);
  posix_spawn_file_actions_adddup2(&actions, ready, 3);
  std::vector<std::string> arguments = {binary,       "--socket",   socket, "--exit-when-idle",
                                        kIdleSeconds, "--ready-fd", "3",    "--background"};
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  pid_t child;
  const int error = posix_spawn(&child, binary.c_str(), &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) return absl::ErrnoToStatus(error, absl::StrCat("cannot run ", binary));
  int status;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return absl::OkStatus();
}

// True when the daemon wrote its ready byte, false when it ended without one or the time ran out.
bool AwaitReady(const UniqueFd& ready, std::chrono::milliseconds timeout) {
  const auto limit = std::chrono::steady_clock::now() + timeout;
  while (std::chrono::steady_clock::now() < limit) {
    pollfd poll_ready = {ready.get(), POLLIN, 0};
    if (poll(&poll_ready, 1, 50) <= 0) continue;
    char byte;
    return read(ready.get(), &byte, 1) == 1;
  }
  return false;
}

}  // namespace

absl::StatusOr<std::string> FindBinary(const std::string& name, const char* variable) {
  if (const char* named = std::getenv(variable); named != nullptr && *named != '\0') {
    if (IsExecutable(named)) return std::string(named);
    return absl::NotFoundError(absl::StrCat(variable, " names ", named, ", which cannot be run"));
  }
  const std::string own = OwnDirectory();
  for (const char* relative : {"/", "/bin/", "/../bin/", "/../../bin/", "/../../../bin/"}) {
    if (std::string path = absl::StrCat(own, relative, name); IsExecutable(path)) return path;
  }
  const char* path = std::getenv("PATH");
  for (const auto& directory : absl::StrSplit(path == nullptr ? "" : path, ':')) {
    if (std::string candidate = absl::StrCat(directory, "/", name); IsExecutable(candidate)) return candidate;
  }
  return absl::NotFoundError(
      absl::StrCat("the program ", name, " was not found: set ", variable, ", or put it on PATH"));
}

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
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return absl::ErrnoToStatus(errno, "pipe2 failed");
  UniqueFd ready(ends[0]), ready_child(ends[1]);
  const std::string log = absl::StrCat(directory, "/xpud.log");
  RETURN_IF_ERROR(Spawn(binary, daemon.address, log, ready_child.get()));
  ready_child.Reset();
  if (!AwaitReady(ready, timeout)) {
    return absl::UnavailableError(absl::StrCat("the xpud daemon did not start within ", timeout.count(),
                                               " ms: ", LastLogLine(log), " (", log, ")"));
  }
  ASSIGN_OR_RETURN(daemon.socket, ConnectSocket(daemon.address));
  daemon.started_here = true;
  std::fprintf(stderr, "xpud: started a private daemon at %s; it ends %s s after its last client\n",
               daemon.address.c_str(), kIdleSeconds);
  return daemon;
}

}  // namespace xpud::client
