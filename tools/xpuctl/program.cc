#include "tools/xpuctl/program.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstring>
#include <map>
#include <string_view>
#include <utility>

#include "proto/base/descriptor_error.h"
#include "proto/base/status_macros.h"
#include "proto/base/text.h"
#include "proto/base/unique_fd.h"

namespace xpud::xpuctl {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::array kForwarded = {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGCONT, SIGWINCH};

// Where the handler writes the number of each signal.
std::atomic<int> signal_pipe{-1};
static_assert(std::atomic<int>::is_always_lock_free);

// The terminal sends its signals to the whole process group, and so to the program too.
void Forward(int number, siginfo_t* info, void*) {
  if (info->si_code == SI_KERNEL) return;
  const int saved = errno;
  const auto byte = static_cast<unsigned char>(number);
  (void)!write(signal_pipe.load(), &byte, 1);
  errno = saved;
}

// While it lives, signals of kForwarded and SIGCHLD come out of fd(). Ignored ones, as under nohup, stay
// ignored.
class Signals {
 public:
  static absl::StatusOr<Signals> Catch() {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) return DescriptorError("pipe2");
    Signals signals{UniqueFd(ends[0]), UniqueFd(ends[1])};
    signal_pipe.store(signals.write_.get());
    signals.Catch(SIGCHLD);  // an ignored one would take the program's status away
    for (const int number : kForwarded) {
      struct sigaction before = {};
      if (sigaction(number, nullptr, &before) == 0 && before.sa_handler != SIG_IGN) signals.Catch(number);
    }
    return signals;
  }
  ~Signals() {
    for (const auto& [number, before] : before_) sigaction(number, &before, nullptr);
  }
  Signals(Signals&& other) noexcept
      : read_(std::move(other.read_)),
        write_(std::move(other.write_)),
        before_(std::exchange(other.before_, {})) {}
  Signals& operator=(Signals&&) = delete;

  int fd() const { return read_.get(); }
  // Passes on what has come.
  void Drain(pid_t to) const {
    std::array<unsigned char, 64> numbers;
    const ssize_t count = read(read_.get(), numbers.data(), numbers.size());
    for (ssize_t i = 0; i < count; ++i)
      if (const int number = numbers[static_cast<size_t>(i)]; number != SIGCHLD) kill(to, number);
  }

 private:
  Signals(UniqueFd read, UniqueFd write) : read_(std::move(read)), write_(std::move(write)) {}

  void Catch(int number) {
    struct sigaction action = {};
    action.sa_sigaction = Forward;
    action.sa_flags = SA_SIGINFO | SA_RESTART;
    sigaction(number, &action, &before_[number]);
  }

  UniqueFd read_, write_;
  std::map<int, struct sigaction> before_;
};

// This process's environment with `variables` instead of those of the same names.
std::vector<std::string> EnvironmentWith(const std::vector<std::string>& variables) {
  std::vector<std::string> all = variables;
  for (char** each = environ; *each != nullptr; ++each) {
    const std::string_view entry = *each;
    const std::string_view name = entry.substr(0, entry.find('=') + 1);
    if (std::ranges::none_of(variables, [&](const std::string& own) { return own.starts_with(name); }))
      all.emplace_back(entry);
  }
  return all;
}

std::vector<char*> PointersTo(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

// Returns 0, or the error's number. Signals that this process catches have their default action in the
// program.
int Spawn(std::vector<std::string> words, std::vector<std::string> environment, pid_t& pid) {
  const std::vector<char*> arguments = PointersTo(words), variables = PointersTo(environment);
  return posix_spawnp(&pid, arguments[0], nullptr, nullptr, arguments.data(), variables.data());
}

int StatusOf(const siginfo_t& end) {
  return end.si_code == CLD_EXITED ? end.si_status : kSignalled + end.si_status;
}

int TimeoutFor(std::optional<Clock::time_point> due) {
  if (!due) return -1;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(*due - Clock::now()).count();
  return static_cast<int>(std::clamp<int64_t>(left, 0, INT_MAX));
}

}  // namespace

absl::StatusOr<int> RunProgram(const std::vector<std::string>& words,
                               const std::vector<std::string>& variables,
                               std::optional<std::chrono::milliseconds> most) {
  ASSIGN_OR_RETURN(const Signals signals, Signals::Catch());
  pid_t pid = 0;
  if (const int failed = Spawn(words, EnvironmentWith(variables), pid); failed != 0) {
    std::fprintf(stderr, "xpuctl grant: cannot run %s: %s\n", PrintableText(words[0]).c_str(),
                 std::strerror(failed));
    return failed == ENOENT ? kNoProgram : kCannotRun;
  }
  std::optional<Clock::time_point> due;
  if (most) due = Clock::now() + *most;
  bool is_over = false;
  siginfo_t end = {};
  while (true) {
    pollfd event = {.fd = signals.fd(), .events = POLLIN, .revents = 0};
    poll(&event, 1, TimeoutFor(due));
    if (event.revents != 0) signals.Drain(pid);
    if (waitid(P_PID, static_cast<id_t>(pid), &end, WEXITED | WNOHANG) != 0)
      return absl::ErrnoToStatus(errno, "waitid failed");
    if (end.si_pid != 0) return is_over ? kTimeIsOver : StatusOf(end);
    if (due && Clock::now() >= *due) {
      kill(pid, is_over ? SIGKILL : SIGTERM);
      due = is_over ? std::nullopt : std::optional(Clock::now() + kKillAfter);
      is_over = true;
    }
  }
}

}  // namespace xpud::xpuctl
