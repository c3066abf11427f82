// Requests to an executor process and its replies, over a socket. Thread-safe; one request at a time.
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

  // Creates the two ends.
  static absl::Status CreatePair(UniqueFd& daemon, UniqueFd& executor);
  explicit Channel(UniqueFd socket) : socket_(std::move(socket)) {}

  // Sends a request and waits for its reply. `fd` is sent along, or -1. After each `timeout_ms` without a
  // reply it calls `go_on`; if that returns false, or the executor is gone, it returns Unavailable, and so do
  // all later calls. Other errors come from the executor.
  absl::StatusOr<Reply> Ask(
      const Request& request, int fd, int timeout_ms, absl::FunctionRef<bool()> go_on = [] { return false; });
  absl::Status Tell(const Request& request);
  bool timed_out() const { return timed_out_.load(std::memory_order_relaxed); }

  // For the executor: waits for the next request.
  absl::StatusOr<Question> Next();
  void Respond(const absl::Status& status, Answer& answer, int fd = -1);

 private:
  absl::Status AwaitAnswer(int timeout_ms, absl::FunctionRef<bool()> go_on);

  UniqueFd socket_;
  Mutex mutex_;
  std::atomic<bool> timed_out_{false};
};

// Copies bytes to a new memfd, and back.
absl::StatusOr<UniqueFd> ToMemfd(std::span<const std::byte> bytes);
absl::StatusOr<std::string> FromMemfd(const UniqueFd& fd, size_t bytes);

}  // namespace xpud::executor::process
