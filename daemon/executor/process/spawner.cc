#include "daemon/executor/process/spawner.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <pthread.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "daemon/executor/process/channel.h"
#include "daemon/executor/process/executor_main.h"
#include "proto/base/status_macros.h"
#include "proto/transport/handshake.h"

namespace xpud::executor::process {
namespace {

constexpr int kSocketFd = 3;  // the spawner's only fd besides stdin, stdout and stderr
constexpr size_t kMaxFds = kFirstFreeFd - kMemoryChannelFd;
static_assert(kMaxFds <= transport::kMaxMessageFds);
constexpr size_t kStackBytes = 64 << 10;

size_t FdCount(const ExecutorCommand& command) {
  return kFirstRingFd - kMemoryChannelFd + size_t{2} * command.rings;
}

struct Spawned {
  pid_t pid = -1;
  int error = 0;
};

// What the child needs between clone and exec, while it shares the spawner's memory.
struct Child {
  std::span<UniqueFd> fds;
  std::vector<char*> arguments;
  int error = 0;
};

std::vector<char*> Pointers(std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (std::string& text : strings) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

// Makes system calls only. The signal mask is inherited, so that the terminal's Ctrl-C reaches the daemon
// only.
int RunChild(void* argument) {
  Child& child = *static_cast<Child*>(argument);
  int target = kMemoryChannelFd;
  for (const UniqueFd& fd : child.fds)
    if (dup2(fd.get(), target++) < 0) child.error = errno;
  if (child.error == 0 && close_range(static_cast<unsigned>(target), ~0U, CLOSE_RANGE_CLOEXEC) == 0)
    execve("/proc/self/exe", child.arguments.data(), environ);
  child.error = child.error != 0 ? child.error : errno;
  _exit(kExitFailed);
}

Spawned SpawnHere(const ExecutorCommand& command, const Spawner::Common& common, std::span<UniqueFd> fds) {
  const std::string back_end(command.back_end, strnlen(command.back_end, sizeof(command.back_end)));
  std::vector<std::string> arguments = ServeArguments{.back_end = back_end,
                                                      .device = static_cast<int>(command.index),
                                                      .driver_library = common.driver_library,
                                                      .rings = static_cast<int>(command.rings),
                                                      .confine = common.confine}
                                           .ToArgv();
  Child child = {fds, Pointers(arguments)};
  static std::array<std::byte, kStackBytes> stack;
  const pid_t pid =
      clone(RunChild, stack.data() + stack.size(), CLONE_VM | CLONE_VFORK | CLONE_PARENT | SIGCHLD, &child);
  return pid < 0 ? Spawned{-1, errno} : Spawned{pid, child.error};
}

// The main loop of the spawner process. Exits when the daemon hangs up.
[[noreturn]] void Serve(const Spawner::Common& common) {
  pthread_setname_np(pthread_self(), "xpud-spawner");
  for (;;) {
    ExecutorCommand command;
    const auto bytes = std::as_writable_bytes(std::span(&command, 1));
    if (!transport::ReceiveMessage(kSocketFd, bytes).ok() || command.rings > kMaxRings) _exit(0);
    std::array<UniqueFd, kMaxFds> fds;
    const std::span<UniqueFd> given(fds.data(), FdCount(command));
    std::byte mark;
    if (!transport::ReceiveMessage(kSocketFd, {&mark, 1}, given).ok()) _exit(0);
    for (UniqueFd& fd : given)  // moves them above the numbers that the child uses
      fd.Reset(fcntl(fd.get(), F_DUPFD_CLOEXEC, kFirstFreeFd));
    const Spawned spawned = SpawnHere(command, common, given);
    if (!transport::SendMessage(kSocketFd, std::as_bytes(std::span(&spawned, 1))).ok()) _exit(0);
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<Spawner>> Spawner::Start(const Common& common,
                                                        const std::function<void()>& confine) {
  UniqueFd here, there;
  RETURN_IF_ERROR(Channel::CreatePair(here, there));
  const pid_t pid = fork();
  if (pid < 0) return absl::ErrnoToStatus(errno, "fork failed");
  if (pid == 0) {
    if (dup2(there.get(), kSocketFd) < 0) _exit(1);
    close_range(kSocketFd + 1, ~0U, 0);
    confine();
    Serve(common);
  }
  UniqueFd pidfd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  if (!pidfd.valid()) return absl::ErrnoToStatus(errno, "pidfd_open failed");
  return std::unique_ptr<Spawner>(new Spawner(pid, std::move(pidfd), std::move(here)));
}

Spawner::~Spawner() {
  syscall(SYS_pidfd_send_signal, pidfd_.get(), SIGKILL, nullptr, 0);
  while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

void Spawner::Close() { shutdown(socket_.get(), SHUT_RDWR); }

absl::StatusOr<pid_t> Spawner::Spawn(const ExecutorCommand& command, std::span<const int> fds) {
  MutexLock lock(mutex_);
  const std::byte mark{};
  Spawned spawned;
  absl::Status status = transport::SendMessage(socket_.get(), std::as_bytes(std::span(&command, 1)));
  if (status.ok()) status = transport::SendMessage(socket_.get(), {&mark, 1}, fds);
  if (status.ok())
    status = transport::ReceiveMessage(socket_.get(), std::as_writable_bytes(std::span(&spawned, 1)));
  if (!status.ok())
    return absl::UnavailableError(absl::StrCat("the spawner of executors is gone: ", status.message()));
  if (spawned.error != 0) {
    if (spawned.pid > 0) waitpid(spawned.pid, nullptr, 0);
    return absl::ErrnoToStatus(spawned.error, "starting an executor process failed");
  }
  return spawned.pid;
}

}  // namespace xpud::executor::process
