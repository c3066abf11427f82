// A queue of the CPU device: runs closed lists in order on its thread. Level Zero lets any thread execute on
// a queue.
#pragma once

#include <memory>

#include "drivers/cpu/command_thread.h"
#include "drivers/frontend/command_list.h"

namespace xpud::drivers::cpu {

class CpuCommandQueue final : public CommandQueue {
 public:
  CpuCommandQueue(std::shared_ptr<CommandThread> thread, bool synchronous)
      : CommandQueue(thread->device().driver()), thread_(std::move(thread)), synchronous_(synchronous) {}

  ze_result_t Execute(std::span<CommandList* const> lists, Fence* fence) override;
  ze_result_t Synchronize(uint64_t timeout_ns) override { return thread_->Wait(timeout_ns); }
  ze_result_t CreateFence(const ze_fence_desc_t& desc, std::unique_ptr<Fence>& fence) override;

 private:
  const std::shared_ptr<CommandThread> thread_;
  const bool synchronous_;
};

}  // namespace xpud::drivers::cpu
