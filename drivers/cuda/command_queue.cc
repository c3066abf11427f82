#include "drivers/cuda/command_queue.h"

#include "drivers/cuda/command_list.h"

namespace xpud::drivers::cuda {

ze_result_t CudaCommandQueue::Enqueue(std::span<CommandList* const> lists, Fence* fence) {
  MutexLock lock(mutex_);
  stream_->device().MakeCurrent();
  for (const CommandList* list : lists) {
    const ze_result_t result = static_cast<const RegularList*>(list)->Run(*stream_);
    if (result != ZE_RESULT_SUCCESS) return result;
  }
  return fence == nullptr ? ZE_RESULT_SUCCESS
                          : EnqueueSignal(*stream_, static_cast<CudaFence*>(fence)->state());
}

ze_result_t CudaCommandQueue::Execute(std::span<CommandList* const> lists, Fence* fence) {
  for (const CommandList* list : lists) {
    if (!static_cast<const RegularList*>(list)->closed()) return ZE_RESULT_ERROR_INVALID_ARGUMENT;
  }
  const ze_result_t result = Enqueue(lists, fence);
  return synchronous_ && result == ZE_RESULT_SUCCESS ? stream_->Wait(UINT64_MAX) : result;
}

ze_result_t CudaCommandQueue::CreateFence(const ze_fence_desc_t& desc, std::unique_ptr<Fence>& fence) {
  std::shared_ptr<EventState> state;
  const ze_result_t result = EventState::Create(words_, false, state);
  if (result != ZE_RESULT_SUCCESS) return result;
  state->Set((desc.flags & ZE_FENCE_FLAG_SIGNALED) != 0);
  fence = std::make_unique<CudaFence>(driver(), std::move(state));
  return ZE_RESULT_SUCCESS;
}

}  // namespace xpud::drivers::cuda
