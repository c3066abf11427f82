#include "daemon/stream/completion.h"

#include "daemon/stream/asynchronous_completion.h"
#include "daemon/stream/synchronous_completion.h"

namespace xpud::stream {

std::unique_ptr<Completion> Completion::Create(const Context& context, executor::DeviceQueue& queue,
                                               uint32_t id) {
  if (context.state.device->properties().synchronous)
    return std::make_unique<SynchronousCompletion>(context, queue, id);
  return std::make_unique<AsynchronousCompletion>(context, queue, id);
}

absl::Status Completion::WriteFence(uint64_t* word) {
  context_.state.commands += submitted_ - fenced_;
  fenced_ = submitted_;
  return queue_.WriteValue(word, submitted_);
}

}  // namespace xpud::stream
