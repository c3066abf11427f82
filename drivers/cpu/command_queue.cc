#include "drivers/cpu/command_queue.h"

#include <vector>

#include "drivers/cpu/command_list.h"

namespace xpud::drivers::cpu {
namespace {

// Several lists and their fence as one command: the lists of two Execute calls never interleave.
class ListBatch final : public Command {
 public:
  ListBatch(std::vector<std::shared_ptr<CommandSequence>> lists, std::shared_ptr<EventState> fence)
      : Command(Sync{}), lists_(std::move(lists)), fence_(std::move(fence)) {}

 private:
  bool Work(WorkerPool& pool, const std::atomic<bool>& stop) const override {
    for (const auto& list : lists_) {
      if (!cpu::Run(*list, pool, stop)) return false;
    }
    if (fence_ != nullptr) fence_->Signal();
    return true;
  }

  const std::vector<std::shared_ptr<CommandSequence>> lists_;
  const std::shared_ptr<EventState> fence_;
};

}  // namespace

ze_result_t CpuCommandQueue::Execute(std::span<CommandList* const> lists, Fence* fence) {
  std::vector<std::shared_ptr<CommandSequence>> sequences;
  for (CommandList* list : lists) {
    const auto& regular = static_cast<const RegularList&>(*list);
    if (!regular.closed() || &regular.device() != &thread_->device()) return ZE_RESULT_ERROR_INVALID_ARGUMENT;
    sequences.push_back(regular.commands());
  }
  std::shared_ptr<EventState> signal;
  if (fence != nullptr) signal = static_cast<CpuFence*>(fence)->shared_state();
  thread_->Enqueue(std::make_unique<ListBatch>(std::move(sequences), std::move(signal)));
  return synchronous_ ? thread_->Wait(UINT64_MAX) : ZE_RESULT_SUCCESS;
}

ze_result_t CpuCommandQueue::CreateFence(const ze_fence_desc_t& desc, std::unique_ptr<Fence>& fence) {
  fence = std::make_unique<CpuFence>(driver(), (desc.flags & ZE_FENCE_FLAG_SIGNALED) != 0);
  return ZE_RESULT_SUCCESS;
}

}  // namespace xpud::drivers::cpu
