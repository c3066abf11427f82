#include "deploy/agent/slurm/command.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <optional>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/descriptor_error.h"
#include "proto/base/status_macros.h"
#include "proto/base/text.h"
#include "proto/base/unique_fd.h"

namespace xpud::agent::slurm {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kMaxErrorText = 300;

struct Pipe {
  UniqueFd read, write;
};

absl::StatusOr<Pipe> MakePipe() {
  std::array<int, 2> ends;
  if (pipe2(ends.data(), O_CLOEXEC) != 0) return DescriptorError("pipe2");
  return Pipe{UniqueFd(ends[0]), UniqueFd(ends[1])};
}

// A running program. Its destructor kills it.
class Child {
 public:
  static absl::StatusOr<Child> Start(const std::vector<std::string>& arguments, int out, int error) {
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, error, STDERR_FILENO);
    // The agent blocks signals and ignores SIGPIPE; the program does neither.
    posix_spawnattr_t attributes;
    posix_spawnattr_init(&attributes);
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &all);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    std::vector<char*> words;
    for (const std::string& argument : arguments) words.push_back(const_cast<char*>(argument.c_str()));
    words.push_back(nullptr);
    pid_t pid = -1;
    const int failure = posix_spawn(&pid, words[0], &actions, &attributes, words.data(), environ);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    if (failure != 0) return absl::ErrnoToStatus(failure, absl::StrCat("cannot run ", arguments[0]));
    return Child(pid);
  }
  Child(Child&& other) noexcept : pid_(std::exchange(other.pid_, -1)) {}
  Child& operator=(Child&&) = delete;
  ~Child() {
    if (pid_ < 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }

  // The exit status, as waitpid has it. Waits until `end`; nullopt: it has not ended.
  std::optional<int> Wait(Clock::time_point end) {
    int status = 0;
    pid_t ended = 0;
    // Its output has ended, so that it ends now.
    while ((ended = waitpid(pid_, &status, WNOHANG)) == 0 && Clock::now() < end)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (ended != pid_) return std::nullopt;
    pid_ = -1;
    return status;
  }

 private:
  explicit Child(pid_t pid) : pid_(pid) {}
  pid_t pid_;
};

// Appends what there is. Returns false at the end.
bool ReadSome(int fd, std::string& out, size_t most) {
  std::array<char, 64 << 10> buffer;
  const ssize_t count = read(fd, buffer.data(), buffer.size());
  if (count < 0) return errno == EINTR || errno == EAGAIN;
  out.append(buffer.data(), std::min(static_cast<size_t>(count), most - std::min(most, out.size())));
  return count > 0;
}

}  // namespace

absl::StatusOr<std::string> RunCommand(const std::vector<std::string>& arguments, CommandLimits limits) {
  const auto end = Clock::now() + limits.time;
  ASSIGN_OR_RETURN(Pipe out, MakePipe());
  ASSIGN_OR_RETURN(Pipe error, MakePipe());
  ASSIGN_OR_RETURN(Child child, Child::Start(arguments, out.write.get(), error.write.get()));
  out.write.Reset();
  error.write.Reset();
  std::string text, error_text;
  std::array<pollfd, 2> fds = {{{out.read.get(), POLLIN, 0}, {error.read.get(), POLLIN, 0}}};
  while (fds[0].fd >= 0 || fds[1].fd >= 0) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now());
    if (left.count() <= 0 || poll(fds.data(), fds.size(), static_cast<int>(left.count())) == 0) {
      return absl::DeadlineExceededError(
          absl::StrCat(arguments[0], " has not ended for ", limits.time.count(), " ms"));
    }
    if (fds[0].revents != 0 && !ReadSome(fds[0].fd, text, limits.output + 1)) fds[0].fd = -1;
    if (fds[1].revents != 0 && !ReadSome(fds[1].fd, error_text, kMaxErrorText)) fds[1].fd = -1;
    if (text.size() > limits.output) {
      return absl::ResourceExhaustedError(
          absl::StrCat(arguments[0], " writes more than ", limits.output, " bytes"));
    }
  }
  const std::optional<int> status = child.Wait(end);
  if (!status) return absl::DeadlineExceededError(absl::StrCat(arguments[0], " does not end"));
  if (WIFEXITED(*status) && WEXITSTATUS(*status) == 0) return text;
  while (!error_text.empty() && error_text.back() == '\n') error_text.pop_back();
  return absl::InternalError(absl::StrCat(arguments[0],
                                          WIFEXITED(*status)
                                              ? absl::StrCat(" ended with status ", WEXITSTATUS(*status))
                                              : absl::StrCat(" was ended by signal ", WTERMSIG(*status)),
                                          ": ", PrintableText(error_text)));
}

}  // namespace xpud::agent::slurm
