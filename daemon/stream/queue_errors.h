// The errors of a device session's queues, which the client sees at its next synchronisation. A queue has one
// error at a time: the first one. What follows from it is poison, which remembers its cause, so that whoever
// reads it gets the same error, on any queue. REQUIRES: the lane's thread.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "daemon/handles/buffer_table.h"
#include "daemon/tenant/counters.h"
#include "proto/transport/transport.h"
#include "proto/wire/commands.h"

namespace xpud::stream {

class QueueErrors {
 public:
  QueueErrors(transport::ServerTransport& transport, SessionCounters& counters)
      : transport_(transport), counters_(counters) {}

  // Raises the error, unless the queue has one. Returns the fault of what command `sequence` did not write.
  memory::Fault Raise(uint32_t queue, uint64_t sequence, const absl::Status& error) {
    const uint32_t cause = Number(error);
    RaiseCause(queue, sequence, cause);
    return {cause, static_cast<uint8_t>(queue)};
  }
  // Returns the number of an error that nobody has met yet: of poison that a command may read.
  uint32_t Number(const absl::Status& error) {
    last_ = (last_ + 1) % (1 << kNumberBits);
    errors_[last_ % kKept] = absl::Status(error.code(), error.message().substr(0, kMaxMessage));
    return last_ | static_cast<uint32_t>(error.code()) << kNumberBits;
  }
  // Command `sequence` of the queue reads what `fault` poisoned. Returns the fault of what it does not write.
  memory::Fault RaiseAgain(uint32_t queue, uint64_t sequence, memory::Fault fault) {
    if (!IsRaised(queue)) RaiseCause(queue, sequence, fault.cause);
    return {fault.cause, static_cast<uint8_t>(queue)};
  }
  // Returns the error of a cause, or what is left of it.
  absl::Status ErrorOf(uint32_t cause) const {
    const uint32_t number = cause % (1 << kNumberBits);
    if ((last_ - number) % (1 << kNumberBits) < kKept) return errors_[number % kKept];
    return absl::Status(static_cast<absl::StatusCode>(cause >> kNumberBits),
                        "reads a tensor whose computation failed");
  }
  bool IsRaised(uint32_t queue) const { return (raised_ >> queue & 1) != 0; }
  // The client has reported all errors up to the queue's `count`. Returns what it has reported, or
  // InvalidArgument, a breach of protocol, if there are not that many.
  absl::StatusOr<memory::Fault> Clear(uint32_t queue, uint32_t count) {
    if (count != transport_.Errors(queue))
      return absl::InvalidArgumentError("an error was cleared that was never raised");
    Forget(queue);
    return memory::Fault{reported_[queue], static_cast<uint8_t>(queue)};
  }
  // The queue ends, or its error was reported.
  void Forget(uint32_t queue) { raised_ &= ~(uint64_t{1} << queue); }

 private:
  // A cause is a number, and the error's code above it: that of an old error is still known when its text is
  // not.
  static constexpr int kNumberBits = 27;
  static constexpr uint32_t kKept = 256;  // texts
  static constexpr size_t kMaxMessage = 512;

  void RaiseCause(uint32_t queue, uint64_t sequence, uint32_t cause) {
    ++counters_.errors;
    if (IsRaised(queue)) return;
    raised_ |= uint64_t{1} << queue;
    reported_[queue] = cause;
    transport_.RaiseError(queue, sequence, ErrorOf(cause));
  }

  transport::ServerTransport& transport_;
  SessionCounters& counters_;
  uint64_t raised_ = 0;                                // bit q: and not yet cleared by the client
  std::array<uint32_t, wire::kMaxQueues> reported_{};  // the cause of each queue's last error
  uint32_t last_ = 0;                                  // the number of the last cause
  std::array<absl::Status, kKept> errors_;
};

}  // namespace xpud::stream
