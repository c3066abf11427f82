// The allocations of a context, found by any address inside them. `Block` is a back end's memory: it has
// base() and size(), and gives the memory back when it is destroyed. Any thread.
#pragma once

#include <level_zero/ze_api.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "drivers/frontend/driver.h"
#include "proto/base/mutex.h"

namespace xpud::drivers {

template <typename Block>
struct Allocation {
  ze_memory_type_t type;
  Device* device;  // null for host memory
  bool exportable;
  uint64_t id;
  uint64_t charged;  // bytes that count against the device
  std::unique_ptr<Block> block;
};

template <typename Block>
class AllocationMap {
 public:
  void Insert(Allocation<Block> allocation) ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(mutex_);
    allocation.id = next_id_++;
    by_base_.emplace(reinterpret_cast<uintptr_t>(allocation.block->base()), std::move(allocation));
  }

  // The allocation that begins at `base`; none otherwise.
  std::optional<Allocation<Block>> Remove(const void* base) ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(mutex_);
    const auto found = by_base_.find(reinterpret_cast<uintptr_t>(base));
    if (found == by_base_.end()) return std::nullopt;
    std::optional<Allocation<Block>> allocation(std::move(found->second));
    by_base_.erase(found);
    return allocation;
  }

  // All that is left, for the end of a context.
  std::vector<Allocation<Block>> RemoveAll() ABSL_LOCKS_EXCLUDED(mutex_) {
    std::vector<Allocation<Block>> allocations;
    MutexLock lock(mutex_);
    for (auto& entry : by_base_) allocations.push_back(std::move(entry.second));
    by_base_.clear();
    return allocations;
  }

  // Calls `read(const Allocation&)` under the lock for the allocation that holds `address`; false when none
  // does.
  template <typename Read>
  bool Visit(const void* address, Read&& read) const ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(mutex_);
    const Allocation<Block>* const allocation = FindLocked(reinterpret_cast<uintptr_t>(address));
    if (allocation == nullptr) return false;
    read(*allocation);
    return true;
  }

 private:
  const Allocation<Block>* FindLocked(uintptr_t address) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    auto next = by_base_.upper_bound(address);
    if (next == by_base_.begin()) return nullptr;
    const auto& [base, allocation] = *--next;
    return address - base < allocation.block->size() ? &allocation : nullptr;
  }

  mutable Mutex mutex_;
  uint64_t next_id_ ABSL_GUARDED_BY(mutex_) = 1;
  std::map<uintptr_t, Allocation<Block>> by_base_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace xpud::drivers
