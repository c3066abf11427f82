#include "daemon/compiler/compile_process.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <poll.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <span>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/compiler/compile_turns.h"
#include "proto/base/clock.h"
#include "proto/base/status_macros.h"
#include "proto/transport/handshake.h"

namespace xpud::compiler {
namespace {

// A sanitizer's own memory counts, and is larger than all else.
#if defined(__has_feature)
constexpr bool kSanitized = __has_feature(address_sanitizer) || __has_feature(thread_sanitizer);
#else
constexpr bool kSanitized = false;
#endif

constexpr int kSocketFd = 3;  // the process's only fd besides stdin, stdout and stderr
// Of clock time, for a fork on a busy machine. The daemon waits a little longer than a fork may run.
constexpr uint64_t kSecondNs = 1'000'000'000;
constexpr uint64_t kMaxWaitSeconds = 3 * kMaxCompileSeconds;
constexpr uint64_t kWaitNs = (kMaxWaitSeconds + 2) * kSecondNs;
constexpr int kOverdueNice = 10;
// Before the process is started again. The pause doubles while it lives for a shorter time than the longest.
constexpr int kMinPauseMs = 10, kMaxPauseMs = 1000;

constexpr size_t kMaxRequestBytes = 1 << 20, kMaxAnswerBytes = 64 << 20;

// Before the bytes of a request, on its own socket.
struct RequestHeader {
  uint8_t target = 0, has_doubles = 0, reserved[6] = {};
  char processor[24] = {};
  uint64_t bytes = 0;
};

// Before the code, or the text of an error.
struct AnswerHeader {
  int64_t code = 0;  // absl::StatusCode
  uint64_t bytes = 0;
};

absl::Status Gone() { return absl::AbortedError("the process that compiles clients' kernels is gone"); }

bool ReadAll(int fd, void* to, size_t bytes) {
  auto* at = static_cast<char*>(to);
  while (bytes > 0) {
    const ssize_t n = read(fd, at, bytes);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    at += n;
    bytes -= static_cast<size_t>(n);
  }
  return true;
}

bool WriteAll(int fd, const void* from, size_t bytes) {
  const auto* at = static_cast<const char*>(from);
  while (bytes > 0) {
    iovec part = {const_cast<char*>(at), bytes};
    msghdr message = {};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    const ssize_t n = sendmsg(fd, &message, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    at += n;
    bytes -= static_cast<size_t>(n);
  }
  return true;
}

kernels::CodeTarget TargetOf(const RequestHeader& header) {
  return {static_cast<kernels::Target>(header.target),
          std::string(header.processor, strnlen(header.processor, sizeof(header.processor))),
          header.has_doubles != 0};
}

void SetAlarm(uint64_t ns) {
  const itimerval end = {.it_interval = {},
                         .it_value = {.tv_sec = static_cast<time_t>(ns / kSecondNs),
                                      .tv_usec = static_cast<suseconds_t>(ns % kSecondNs / 1000)}};
  setitimer(ITIMER_REAL, &end, nullptr);
}

// It is overdue: others go before it. The next alarm ends it. Makes system calls only.
void LowerItself(int) {
  setpriority(PRIO_PROCESS, 0, kOverdueNice);
  signal(SIGALRM, SIG_DFL);
  SetAlarm(kMaxWaitSeconds * kSecondNs);
}

void SetLimits() {
  signal(SIGALRM, LowerItself);
  SetAlarm(kCompilePatienceNs);
  const rlimit memory = {kMaxCompileBytes, kMaxCompileBytes}, none = {0, 0},
               time = {kMaxCompileSeconds, kMaxCompileSeconds};
  setrlimit(RLIMIT_CPU, &time);
  if (!kSanitized) setrlimit(RLIMIT_DATA, &memory);
  setrlimit(RLIMIT_CORE, &none);
}

// Whether the process ends (SIGIO) when the daemon hangs up. Returns false if it has.
bool EndWithDaemon(int socket, bool ends) {
  if (ends) fcntl(socket, F_SETOWN, getpid());
  fcntl(socket, F_SETFL, ends ? O_ASYNC : 0);
  pollfd state = {socket, 0, 0};
  return poll(&state, 1, 0) == 0;
}

// In the fork of a request.
[[noreturn]] void ServeRequest(const UniqueFd& socket, CompileProcess::Compiler compile) {
  prctl(PR_SET_NAME, "xpud-compile");
  signal(SIGCHLD, SIG_DFL);  // SPIR-V is made in a child
  SetLimits();
  RequestHeader header;
  if (!ReadAll(socket.get(), &header, sizeof(header)) || header.bytes > kMaxRequestBytes) _exit(1);
  std::string request(header.bytes, '\0');
  if (!ReadAll(socket.get(), request.data(), request.size())) _exit(1);
  if (!EndWithDaemon(socket.get(), true)) _exit(1);
  const absl::StatusOr<std::string> code = compile(TargetOf(header), request);
  if (!EndWithDaemon(socket.get(), false)) _exit(1);
  const std::string text = code.ok() ? *code : std::string(code.status().message());
  const AnswerHeader answer = {static_cast<int64_t>(code.status().code()), text.size()};
  const bool sent =
      WriteAll(socket.get(), &answer, sizeof(answer)) && WriteAll(socket.get(), text.data(), text.size());
  _exit(sent ? 0 : 1);
}

// The main loop of `xpud-compile0`. Exits with 0 when the daemon hangs up. A message is a target's header
// without a request, so that what LLVM does once for a target is done before the fork.
[[noreturn]] void Serve(CompileProcess::Compiler compile) {
  pthread_setname_np(pthread_self(), "xpud-compile0");
  signal(SIGCHLD, SIG_IGN);  // forks need no wait
  std::array<bool, 256> warm = {};
  for (;;) {
    RequestHeader header;
    std::array<UniqueFd, 1> socket;
    if (!transport::ReceiveMessage(kSocketFd, std::as_writable_bytes(std::span(&header, 1)), socket).ok())
      _exit(0);
    if (!std::exchange(warm[header.target], true)) (void)kernels::WarmUpCompiler(TargetOf(header));
    const pid_t child = fork();
    if (child != 0) continue;  // if it failed, the socket is closed, which is an answer
    close(kSocketFd);
    ServeRequest(socket[0], compile);
  }
}

}  // namespace

// ---- in the daemon

Compilation::Compilation(UniqueFd socket, std::string sends, uint64_t now_ns)
    : socket_(std::move(socket)), began_ns_(now_ns), sends_(std::move(sends)) {}

short Compilation::events() const { return sent_ < sends_.size() ? POLLIN | POLLOUT : POLLIN; }

uint64_t Compilation::deadline_ns() const { return began_ns_ + kWaitNs; }

std::optional<absl::StatusOr<std::string>> Compilation::Continue(uint64_t now_ns) {
  if (sent_ < sends_.size()) {
    const ssize_t bytes =
        send(socket_.get(), sends_.data() + sent_, sends_.size() - sent_, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (bytes > 0) sent_ += static_cast<size_t>(bytes);
  }
  if (Receive() && now_ns < deadline_ns()) return std::nullopt;
  return Answer(now_ns);
}

bool Compilation::Receive() {
  std::array<char, 1 << 16> chunk;
  while (received_.size() <= kMaxAnswerBytes) {
    const ssize_t bytes = recv(socket_.get(), chunk.data(), chunk.size(), MSG_DONTWAIT);
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes < 0) return errno == EAGAIN;
    if (bytes == 0) return false;
    received_.append(chunk.data(), static_cast<size_t>(bytes));
  }
  return false;
}

absl::StatusOr<std::string> Compilation::Answer(uint64_t now_ns) {
  AnswerHeader answer;
  const bool whole = received_.size() >= sizeof(answer);
  if (whole) std::memcpy(&answer, received_.data(), sizeof(answer));
  if (received_.size() > kMaxAnswerBytes) return absl::InternalError("the compiler's answer is too long");
  if (!whole || answer.bytes != received_.size() - sizeof(answer)) {
    if (now_ns - began_ns_ >= kMaxCompileSeconds * kSecondNs)
      return absl::DeadlineExceededError(
          absl::StrCat("compiling it takes longer than the ", kMaxCompileSeconds, " s that are allowed"));
    return absl::AbortedError("its compiler crashed, or was killed; the next call has it compiled again");
  }
  received_.erase(0, sizeof(answer));
  if (answer.code == 0) return std::move(received_);
  return absl::Status(static_cast<absl::StatusCode>(answer.code), received_);
}

struct CompileProcess::Shared {
  std::atomic<pid_t> pid{0};
  std::atomic<uint64_t> starts{0};
};

void CompileProcess::Unmap::operator()(Shared* page) const { munmap(page, sizeof(Shared)); }

absl::StatusOr<std::unique_ptr<CompileProcess>> CompileProcess::Start(const std::function<void()>& confine,
                                                                      Compiler compile) {
  std::array<int, 2> ends;
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0)
    return absl::ErrnoToStatus(errno, "socketpair failed");
  UniqueFd here(ends[0]), there(ends[1]);
  void* const page = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return absl::ErrnoToStatus(errno, "mmap failed");
  SharedPage shared(new (page) Shared);
  const pid_t pid = fork();
  if (pid < 0) return absl::ErrnoToStatus(errno, "fork failed");
  if (pid == 0) {
    if (dup2(there.get(), kSocketFd) < 0) _exit(1);
    close_range(kSocketFd + 1, ~0U, 0);
    confine();
    const std::byte ready{};
    if (!transport::SendMessage(kSocketFd, {&ready, 1}).ok()) _exit(1);
    Supervise(std::move(shared), compile);
  }
  there.Reset();
  std::byte ready;
  RETURN_IF_ERROR(transport::ReceiveMessage(here.get(), {&ready, 1}));  // it is confined
  return std::unique_ptr<CompileProcess>(new CompileProcess(pid, std::move(here), std::move(shared)));
}

// The daemon hangs up when it ends; then the child ends with 0.
void CompileProcess::Supervise(SharedPage shared, Compiler compile) {
  pthread_setname_np(pthread_self(), "xpud-compilers");
  signal(SIGCHLD, SIG_DFL);
  for (int pause_ms = kMinPauseMs;;) {
    const uint64_t began = NowNs();
    const pid_t child = fork();
    if (child == 0) {
      shared.reset();
      Serve(compile);
    }
    shared->pid = std::max(child, 0);
    shared->starts.fetch_add(child > 0 ? 1 : 0);
    int ended = 1;
    while (child > 0 && waitpid(child, &ended, 0) < 0 && errno == EINTR) {
    }
    shared->pid = 0;
    if (ended == 0) _exit(0);
    const bool lived = NowNs() - began > kMaxPauseMs * (kSecondNs / 1000);
    pause_ms = lived ? kMinPauseMs : std::min(2 * pause_ms, kMaxPauseMs);
    pollfd hang_up = {kSocketFd, 0, 0};
    if (poll(&hang_up, 1, pause_ms) > 0) _exit(0);
  }
}

// By hanging up: the daemon has given up its right to signal processes that it started earlier.
CompileProcess::~CompileProcess() {
  shutdown(socket_.get(), SHUT_RDWR);
  while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

CompileProcess::State CompileProcess::state() const {
  const uint64_t starts = shared_->starts;
  return {.pid = shared_->pid, .replaced = starts == 0 ? 0 : starts - 1};
}

absl::StatusOr<Compilation> CompileProcess::Begin(const kernels::CodeTarget& target,
                                                  const std::string& request) {
  RequestHeader header;
  header.target = static_cast<uint8_t>(target.target);
  header.has_doubles = target.has_doubles ? 1 : 0;
  transport::SetText(header.processor, target.processor);
  std::array<int, 2> ends;
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0)
    return absl::AbortedError(absl::ErrnoToStatus(errno, "socketpair failed").message());
  UniqueFd here(ends[0]);
  const UniqueFd there(ends[1]);
  const std::array<int, 1> fds = {there.get()};
  if (!transport::SendMessage(socket_.get(), std::as_bytes(std::span(&header, 1)), fds).ok()) return Gone();
  header.bytes = request.size();
  std::string sends(reinterpret_cast<const char*>(&header), sizeof(header));
  return Compilation(std::move(here), sends + request, NowNs());
}

}  // namespace xpud::compiler
