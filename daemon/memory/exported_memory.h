// A chunk's memory, as other devices of the daemon map it. The lane of the chunk makes it with the first loan
// and ends it when the memory ends or leaves its device; PeerMaps of the other lanes map it. Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "proto/base/mutex.h"
#include "proto/base/unique_fd.h"

namespace xpud::memory {

class ExportedMemory {
 public:
  ExportedMemory(UniqueFd fd, uint64_t bytes)
      : bytes_(bytes), fd_(std::make_shared<const UniqueFd>(std::move(fd))) {}
  ExportedMemory(const ExportedMemory&) = delete;
  ExportedMemory& operator=(const ExportedMemory&) = delete;

  uint64_t bytes() const { return bytes_; }
  bool ended() const { return ended_.load(std::memory_order_acquire); }
  // Devices that map it. The memory is free once it has ended and nobody maps it.
  uint32_t mappings() const { return mappings_.load(std::memory_order_acquire); }
  // Returns null once it has ended.
  std::shared_ptr<const UniqueFd> fd() const {
    const MutexLock lock(mutex_);
    return fd_;
  }
  // It is not mapped any more where it is. Calls each `on_end`.
  void End() {
    std::vector<std::function<void()>> told;
    {
      const MutexLock lock(mutex_);
      fd_ = nullptr;
      ended_.store(true, std::memory_order_release);
      told.swap(on_end_);
    }
    for (const auto& tell : told) tell();
  }
  // A device maps it. `on_end` is called once, from any thread, at once if it has ended.
  void AddMapping(std::function<void()> on_end) {
    mappings_.fetch_add(1, std::memory_order_relaxed);
    {
      const MutexLock lock(mutex_);
      if (!ended_.load(std::memory_order_relaxed)) return on_end_.push_back(std::move(on_end));
    }
    on_end();
  }
  void RemoveMapping() { mappings_.fetch_sub(1, std::memory_order_release); }

 private:
  const uint64_t bytes_;
  std::atomic<bool> ended_{false};
  std::atomic<uint32_t> mappings_{0};
  mutable Mutex mutex_;
  std::shared_ptr<const UniqueFd> fd_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::function<void()>> on_end_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace xpud::memory
