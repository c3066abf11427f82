// Enqueues an operation between its waits and its signal. A regular list stores commands, which are
// immutable, so that a closed list may run any number of times.
#pragma once

#include <memory>
#include <utility>

#include "drivers/cuda/operations.h"

namespace xpud::drivers::cuda {

// Streams wait for the word's value instead of a CUDA event, so that the host can signal it, too.
ze_result_t EnqueueWait(const Stream& stream, const EventState& event);
// Called before and after the work. Times are stored only for an event with timestamps.
ze_result_t EnqueueStart(const Stream& stream, const EventState& event);
ze_result_t EnqueueSignal(const Stream& stream, const EventState& event);

// REQUIRES: the stream's context is current.
template <typename Operation>
ze_result_t Enqueue(const Stream& stream, const Operation& operation, const EventState* signal) {
  if (signal == nullptr) [[likely]]
    return Run(operation, stream);
  ze_result_t result = EnqueueStart(stream, *signal);
  if (result == ZE_RESULT_SUCCESS) result = Run(operation, stream);
  return result == ZE_RESULT_SUCCESS ? EnqueueSignal(stream, *signal) : result;
}

inline const EventState* SignalOf(const Sync& sync) {
  return sync.signal == nullptr ? nullptr : &static_cast<const CudaEvent*>(sync.signal)->state();
}

class Command {
 public:
  explicit Command(const Sync& sync) : sync_(KeptSync<EventState>::Of<CudaEvent>(sync)) {}
  virtual ~Command() = default;

  // Enqueues wait, operation and signal.
  ze_result_t Run(const Stream& stream) const {
    for (const auto& event : sync_.waits) {
      const ze_result_t result = EnqueueWait(stream, *event);
      if (result != ZE_RESULT_SUCCESS) return result;
    }
    return Work(stream);
  }

 protected:
  const EventState* signal() const { return sync_.signal.get(); }

 private:
  virtual ze_result_t Work(const Stream& stream) const = 0;

  const KeptSync<EventState> sync_;
};

template <typename Operation>
class CommandOf final : public Command {
 public:
  CommandOf(Operation operation, const Sync& sync) : Command(sync), operation_(std::move(operation)) {}

 private:
  ze_result_t Work(const Stream& stream) const override { return Enqueue(stream, operation_, signal()); }
  const Operation operation_;
};

// Copies what the operation borrows (arguments, patterns) into a command.
template <typename Operation>
std::unique_ptr<Command> KeepCommand(const Operation& operation, const Sync& sync) {
  auto kept = Keep(operation);
  return std::make_unique<CommandOf<decltype(kept)>>(std::move(kept), sync);
}

}  // namespace xpud::drivers::cuda
