// Questions to an executor process and its answers, over a socket. Any thread; one question at a time.
#pragma once

#include <atomic>
#include <span>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "daemon/executor/process/messages.h"
#include "proto/base/mutex.h"
#include "proto/base/unique_fd.h"

namespace xpud::executor::process {

class Channel {
 public:
  struct Reply {
    Answer answer = {};
    UniqueFd fd;
  };
  struct Question {
    Request request = {};
    UniqueFd fd;
  };

  // The two ends.
  static absl::Status CreatePair(UniqueFd& daemon, UniqueFd& executor);
  explicit Channel(UniqueFd socket) : socket_(std::move(socket)) {}

  // `fd`: to be sent along, or -1. Unavailable: the executor is gone, or gave no answer within `timeout_ms`,
  // and `go_on`, which is called then, did not say to wait for as long again: from then on it is asked
  // nothing. Other errors are the executor's answers.
  absl::StatusOr<Reply> Ask(
      const Request& request, int fd, int timeout_ms, absl::FunctionRef<bool()> go_on = [] { return false; });
  absl::Status Tell(const Request& request);
  bool timed_out() const { return timed_out_.load(std::memory_order_relaxed); }

  // The executor's end.
  absl::StatusOr<Question> Next();
  void Respond(const absl::Status& status, Answer& answer, int fd = -1);

 private:
  absl::Status AwaitAnswer(int timeout_ms, absl::FunctionRef<bool()> go_on);

  UniqueFd socket_;
  Mutex mutex_;
  std::atomic<bool> timed_out_{false};
};

// Bytes in a memfd of their own, and back.
absl::StatusOr<UniqueFd> ToMemfd(std::span<const std::byte> bytes);
absl::StatusOr<std::string> FromMemfd(const UniqueFd& fd, size_t bytes);

}  // namespace xpud::executor::process
