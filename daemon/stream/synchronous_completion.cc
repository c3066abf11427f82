#include "daemon/stream/synchronous_completion.h"

#include <algorithm>
#include <atomic>

#include "daemon/stream/device_error.h"
#include "proto/base/clock.h"

namespace xpud::stream {

absl::Status SynchronousCompletion::Fence() {
  context_.counters.commands_completed = std::max(context_.counters.commands_completed, submitted_);
  return WriteFence(context_.transport.CompletedWord(id_));
}

Completion::Launch SynchronousCompletion::Launched(uint64_t sequence, const CheckedOp& op) {
  const std::atomic_ref<uint64_t> reported(error_word_);
  const uint64_t word = reported.load(std::memory_order_relaxed);
  if (word == 0) [[likely]]
    return {};
  reported.store(0, std::memory_order_relaxed);
  return {.takes_long = false,
          .fault = context_.errors.Raise(id_, sequence, ErrorOf(word, Reporter::Of(op.call)))};
}

absl::Status SynchronousCompletion::WriteTimestamp(uint32_t slot) {
  return queue_.WriteValue(context_.transport.TimestampWord(slot), NowNs());
}

}  // namespace xpud::stream
