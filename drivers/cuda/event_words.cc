#include "drivers/cuda/event_words.h"

#include <algorithm>

namespace xpud::drivers::cuda {
namespace {

constexpr size_t kBlockWords = 4096;  // 256 KiB
constexpr size_t kQuarantine = 1024;  // freed words that wait before the first one is reused

}  // namespace

ze_result_t EventWords::GrowLocked() {
  std::unique_ptr<MemoryBlock> block;
  const MemoryRequest request{ZE_MEMORY_TYPE_HOST, kBlockWords * sizeof(EventWord), 0};
  const ze_result_t result = CudaMemoryBlock::Create(device_, request, block);
  if (result != ZE_RESULT_SUCCESS) return result;
  auto* const words = static_cast<EventWord*>(block->base());
  for (size_t i = 0; i < kBlockWords; ++i) free_.push_front(words + i);
  blocks_.push_back(std::move(block));
  return ZE_RESULT_SUCCESS;
}

ze_result_t EventWords::Take(EventWord*& word) {
  MutexLock lock(mutex_);
  if (free_.size() <= kQuarantine) {
    const ze_result_t result = GrowLocked();
    if (result != ZE_RESULT_SUCCESS) return result;
  }
  word = free_.front();
  free_.pop_front();
  *word = {};
  return ZE_RESULT_SUCCESS;
}

void EventWords::Give(EventWord& word) {
  MutexLock lock(mutex_);
  free_.push_back(&word);
}

bool EventWords::lost() const {
  return std::any_of(devices_.begin(), devices_.end(),
                     [](const CudaDevice* device) { return device->lost(); });
}

ze_result_t EventWords::Probe() const {
  for (const CudaDevice* device : devices_) {
    const ze_result_t result = device->Probe();
    if (result != ZE_RESULT_SUCCESS) return result;
  }
  return ZE_RESULT_SUCCESS;
}

}  // namespace xpud::drivers::cuda
