// Words in pinned host memory for events and fences: devices write and wait for them, the host reads them.
// Blocks of words live until the context ends, so that a late write of a device never hits freed memory. A
// freed word is reused only after many others. Shared by its users. Thread-safe.
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
  uint64_t start_ns;   // on the device's clock, if the pool has timestamps
  uint64_t end_ns;

  std::atomic_ref<uint32_t> signal() { return std::atomic_ref<uint32_t>(signalled); }
  CUdeviceptr address() const { return reinterpret_cast<CUdeviceptr>(&signalled); }
};

class EventWords {
 public:
  // REQUIRES: `device` is active. Its context allocates; all devices can use the words.
  EventWords(CudaDevice& device, std::span<CudaDevice* const> devices)
      : device_(device), devices_(devices.begin(), devices.end()) {}

  // Returns a word that is 0.
  ze_result_t Take(EventWord*& word) ABSL_LOCKS_EXCLUDED(mutex_);
  void Give(EventWord& word) ABSL_LOCKS_EXCLUDED(mutex_);
  // Whether a device that could have written a word is known to be lost.
  bool lost() const;
  // Asks the devices. Returns DEVICE_LOST if one is lost.
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
