// A queue of a CUDA device: enqueues closed lists on its stream, on the executing thread. Level Zero lets any
// thread execute on a queue.
#pragma once

#include <memory>

#include "drivers/cuda/event_words.h"
#include "drivers/cuda/stream.h"
#include "drivers/frontend/command_list.h"
#include "proto/base/mutex.h"

namespace xpud::drivers::cuda {

class CudaCommandQueue final : public CommandQueue {
 public:
  CudaCommandQueue(const Driver* driver, std::shared_ptr<Stream> stream, std::shared_ptr<EventWords> words,
                   bool synchronous)
      : CommandQueue(driver),
        stream_(std::move(stream)),
        words_(std::move(words)),
        synchronous_(synchronous) {}

  ze_result_t Execute(std::span<CommandList* const> lists, Fence* fence) override ABSL_LOCKS_EXCLUDED(mutex_);
  ze_result_t Synchronize(uint64_t timeout_ns) override { return stream_->Wait(timeout_ns); }
  ze_result_t CreateFence(const ze_fence_desc_t& desc, std::unique_ptr<Fence>& fence) override;

 private:
  ze_result_t Enqueue(std::span<CommandList* const> lists, Fence* fence) ABSL_LOCKS_EXCLUDED(mutex_);

  const std::shared_ptr<Stream> stream_;
  const std::shared_ptr<EventWords> words_;
  const bool synchronous_;
  Mutex mutex_;  // keeps the lists of two executions apart
};

}  // namespace xpud::drivers::cuda
