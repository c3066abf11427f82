// The errors of a device session's queues, which the client sees at its next synchronisation. A queue has one
// error at a time: the first one. What follows from it is poison. REQUIRES: the lane's thread.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "daemon/tenant/counters.h"
#include "proto/ops/invalid_index.h"
#include "proto/transport/transport.h"

namespace xpud::stream {

class QueueErrors {
 public:
  QueueErrors(transport::ServerTransport& transport, SessionCounters& counters)
      : transport_(transport), counters_(counters) {}

  void Raise(uint32_t queue, uint64_t sequence, const absl::Status& error) {
    ++counters_.errors;
    if (IsRaised(queue)) return;
    raised_ |= uint64_t{1} << queue;
    transport_.RaiseError(queue, sequence, error);
  }
  // `word`: what a kernel of `command` reported (kernels/api/launch.h).
  void RaiseIndexError(uint32_t queue, uint64_t sequence, uint64_t word, const std::string& command) {
    const int64_t value = static_cast<int64_t>(word) >> 8;
    Raise(queue, sequence, absl::OutOfRangeError(ops::DescribeInvalidIndex(value, command)));
  }
  bool IsRaised(uint32_t queue) const { return (raised_ >> queue & 1) != 0; }
  // The client has reported all errors up to the queue's `count`. Returns InvalidArgument, a breach of
  // protocol, if there are not that many.
  absl::Status Clear(uint32_t queue, uint32_t count) {
    if (count != transport_.Errors(queue))
      return absl::InvalidArgumentError("an error was cleared that was never raised");
    Forget(queue);
    return absl::OkStatus();
  }
  // The queue ends, or its error was reported.
  void Forget(uint32_t queue) { raised_ &= ~(uint64_t{1} << queue); }

 private:
  transport::ServerTransport& transport_;
  SessionCounters& counters_;
  uint64_t raised_ = 0;  // bit q: and not yet cleared by the client
};

}  // namespace xpud::stream
