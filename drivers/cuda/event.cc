#include "drivers/cuda/event.h"

#include "drivers/cuda/wait.h"

namespace xpud::drivers::cuda {

ze_result_t EventState::Create(std::shared_ptr<EventWords> words, bool timestamps,
                               std::shared_ptr<EventState>& state) {
  EventWord* word = nullptr;
  const ze_result_t result = words->Take(word);
  if (result != ZE_RESULT_SUCCESS) return result;
  state.reset(new EventState(std::move(words), *word, timestamps));
  return ZE_RESULT_SUCCESS;
}

EventState::~EventState() {
  Set(true);
  words_->Give(word_);
}

ze_result_t EventState::Wait(uint64_t timeout_ns) const {
  uint32_t polls = 0;
  return WaitUntil(timeout_ns, [&]() -> ze_result_t {
    const ze_result_t known = Query();
    // A lost device never writes the word. Asking the device costs more than reading the word.
    if (known != ZE_RESULT_NOT_READY || polls++ % 64 != 0) return known;
    const ze_result_t result = words_->Probe();
    return result == ZE_RESULT_SUCCESS ? ZE_RESULT_NOT_READY : result;
  });
}

ze_result_t EventState::ReadTimestamp(ze_kernel_timestamp_result_t& timestamp) const {
  if (!timestamps_) return ZE_RESULT_ERROR_INVALID_ARGUMENT;
  if (const ze_result_t result = Query(); result != ZE_RESULT_SUCCESS) return result;
  timestamp.global.kernelStart = std::atomic_ref<uint64_t>(word_.start_ns).load(std::memory_order_relaxed);
  timestamp.global.kernelEnd = std::atomic_ref<uint64_t>(word_.end_ns).load(std::memory_order_relaxed);
  timestamp.context = timestamp.global;
  return ZE_RESULT_SUCCESS;
}

ze_result_t CudaEventPool::CreateEvent(const ze_event_desc_t& desc, std::unique_ptr<Event>& event) {
  if (desc.index >= count_) return ZE_RESULT_ERROR_INVALID_ARGUMENT;
  std::shared_ptr<EventState> state;
  const ze_result_t result = EventState::Create(words_, timestamps_, state);
  if (result != ZE_RESULT_SUCCESS) return result;
  event = std::make_unique<CudaEvent>(driver(), std::move(state));
  return ZE_RESULT_SUCCESS;
}

}  // namespace xpud::drivers::cuda
