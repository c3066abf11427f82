// The words in pinned host memory that events and fences stand for: the device writes and waits for them, the
// host reads them. Kept in blocks until the context ends, so that a late write of the device never meets
// freed memory; a freed word is reused only after many others. Shared by what holds words. Any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "drivers/cuda/device.h"
#include "drivers/cuda/memory_block.h"
#include "proto/base/mutex.h"

namespace xpud::drivers::cuda {

struct alignas(64) EventWord {
  uint32_t signalled;  // 0 or 1
  uint64_t start_ns;   // the device's clock, where the pool asks for timestamps
  uint64_t end_ns;

  std::atomic_ref<uint32_t> signal() { return std::atomic_ref<uint32_t>(signalled); }
  CUdeviceptr address() const { return reinterpret_cast<CUdeviceptr>(&signalled); }
};

class EventWords {
 public:
  // `device` is an active one: its context allocates, all devices can use the words.
  EventWords(CudaDevice& device, std::span<CudaDevice* const> devices)
      : device_(device), devices_(devices.begin(), devices.end()) {}

  // Zero.
  ze_result_t Take(EventWord*& word) ABSL_LOCKS_EXCLUDED(mutex_);
  void Give(EventWord& word) ABSL_LOCKS_EXCLUDED(mutex_);
  // True once a device that could have written a word is known to be lost.
  bool lost() const;
  // DEVICE_LOST when one is; asks them.
  ze_result_t Probe() const;

 private:
  ze_result_t GrowLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  CudaDevice& device_;
  const std::vector<CudaDevice*> devices_;
  Mutex mutex_;
  std::vector<std::unique_ptr<MemoryBlock>> blocks_ ABSL_GUARDED_BY(mutex_);
  std::deque<EventWord*> free_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace xpud::drivers::cuda
