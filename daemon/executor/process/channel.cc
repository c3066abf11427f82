#include "daemon/executor/process/channel.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>

#include "absl/strings/str_cat.h"
#include "proto/base/mapping.h"
#include "proto/base/status_macros.h"

namespace xpud::executor::process {
namespace {

template <typename T>
std::span<const std::byte> BytesOf(const T& value) {
  return {reinterpret_cast<const std::byte*>(&value), sizeof(T)};
}
template <typename T>
std::span<std::byte> WritableBytesOf(T& value) {
  return {reinterpret_cast<std::byte*>(&value), sizeof(T)};
}

absl::Status Gone(const absl::Status& cause) {
  return absl::UnavailableError(absl::StrCat("the executor does not answer: ", cause.message()));
}

}  // namespace

absl::Status Channel::CreatePair(UniqueFd& daemon, UniqueFd& executor) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
    return absl::ErrnoToStatus(errno, "socketpair failed");
  daemon.Reset(ends[0]);
  executor.Reset(ends[1]);
  return absl::OkStatus();
}

absl::StatusOr<Channel::Reply> Channel::Ask(const Request& request, int fd, int timeout_ms,
                                            absl::FunctionRef<bool()> go_on) {
  MutexLock lock(mutex_);
  const std::span<const int> fds(&fd, fd >= 0 ? 1 : 0);
  absl::Status status = transport::SendMessage(socket_.get(), BytesOf(request), fds);
  Reply reply;
  if (status.ok()) status = AwaitAnswer(timeout_ms, go_on);
  if (status.ok())
    status = transport::ReceiveMessage(socket_.get(), WritableBytesOf(reply.answer), {&reply.fd, 1});
  if (!status.ok()) {
    // A late answer must not be mistaken for the answer to the next request.
    shutdown(socket_.get(), SHUT_RDWR);
    return Gone(status);
  }
  if (reply.answer.code != 0)
    return absl::Status(static_cast<absl::StatusCode>(reply.answer.code),
                        transport::GetText(reply.answer.text));
  return reply;
}

absl::Status Channel::AwaitAnswer(int timeout_ms, absl::FunctionRef<bool()> go_on) {
  pollfd answer = {socket_.get(), POLLIN, 0};
  int ready;
  do {
    ready = poll(&answer, 1, timeout_ms);
  } while ((ready < 0 && errno == EINTR) || (ready == 0 && go_on()));
  if (ready != 0) return absl::OkStatus();  // also after a hang-up
  timed_out_.store(true, std::memory_order_relaxed);
  return absl::DeadlineExceededError(absl::StrCat("no answer within ", timeout_ms, " ms"));
}

absl::Status Channel::Tell(const Request& request) {
  MutexLock lock(mutex_);
  if (absl::Status status = transport::SendMessage(socket_.get(), BytesOf(request)); !status.ok())
    return Gone(status);
  return absl::OkStatus();
}

absl::StatusOr<Channel::Question> Channel::Next() {
  Question question;
  RETURN_IF_ERROR(
      transport::ReceiveMessage(socket_.get(), WritableBytesOf(question.request), {&question.fd, 1}));
  return question;
}

void Channel::Respond(const absl::Status& status, Answer& answer, int fd) {
  answer.code = static_cast<uint32_t>(status.code());
  transport::SetText(answer.text, std::string_view(status.message().data(), status.message().size()));
  // If the daemon is gone, Next will report it.
  (void)transport::SendMessage(socket_.get(), BytesOf(answer), {&fd, static_cast<size_t>(fd >= 0)});
}

absl::StatusOr<UniqueFd> ToMemfd(std::span<const std::byte> bytes) {
  ASSIGN_OR_RETURN(UniqueFd fd, CreateSealedMemfd("xpud-message", std::max<size_t>(bytes.size(), 1)));
  if (pwrite(fd.get(), bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size()))
    return absl::ErrnoToStatus(errno, "writing to shared memory failed");
  return fd;
}

absl::StatusOr<std::string> FromMemfd(const UniqueFd& fd, size_t bytes) {
  std::string text(bytes, '\0');
  if (pread(fd.get(), text.data(), bytes, 0) != static_cast<ssize_t>(bytes))
    return absl::InternalError("shared memory is smaller than its message claims");
  return text;
}

}  // namespace xpud::executor::process
