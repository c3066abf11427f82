// The allocations of a context, found by any address inside them. Thread-safe.
#pragma once

#include <level_zero/ze_api.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>

#include "drivers/frontend/driver.h"
#include "drivers/frontend/memory_block.h"
#include "proto/base/mutex.h"

namespace xpud::drivers {

struct Allocation {
  ze_memory_type_t type;
  Device* device;  // null for host memory
  bool exportable;
  uint64_t id;  // assigned by the map
  std::unique_ptr<MemoryBlock> block;
};

class AllocationMap {
 public:
  // Returns a number that no allocation has.
  uint64_t TakeId() ABSL_LOCKS_EXCLUDED(mutex_);

  void Insert(Allocation allocation) ABSL_LOCKS_EXCLUDED(mutex_);

  // Removes and returns the allocation that begins at `base`, or nullopt.
  std::optional<Allocation> Remove(const void* base) ABSL_LOCKS_EXCLUDED(mutex_);

  // Calls `read(const Allocation&)` under the lock for the allocation that contains `address`. Returns false
  // if there is none.
  template <typename Read>
  bool Visit(const void* address, Read&& read) const ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(mutex_);
    const Allocation* const allocation = FindLocked(reinterpret_cast<uintptr_t>(address));
    if (allocation == nullptr) return false;
    read(*allocation);
    return true;
  }

 private:
  const Allocation* FindLocked(uintptr_t address) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable Mutex mutex_;
  uint64_t next_id_ ABSL_GUARDED_BY(mutex_) = 1;
  std::map<uintptr_t, Allocation> by_base_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace xpud::drivers
