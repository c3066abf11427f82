#include "drivers/frontend/allocation_map.h"

#include <utility>

namespace xpud::drivers {

uint64_t AllocationMap::TakeId() {
  MutexLock lock(mutex_);
  return next_id_++;
}

void AllocationMap::Insert(Allocation allocation) {
  MutexLock lock(mutex_);
  allocation.id = next_id_++;
  by_base_.emplace(reinterpret_cast<uintptr_t>(allocation.block->base()), std::move(allocation));
}

std::optional<Allocation> AllocationMap::Remove(const void* base) {
  MutexLock lock(mutex_);
  const auto found = by_base_.find(reinterpret_cast<uintptr_t>(base));
  if (found == by_base_.end()) return std::nullopt;
  std::optional<Allocation> allocation(std::move(found->second));
  by_base_.erase(found);
  return allocation;
}

const Allocation* AllocationMap::FindLocked(uintptr_t address) const {
  auto next = by_base_.upper_bound(address);
  if (next == by_base_.begin()) return nullptr;
  const auto& [base, allocation] = *--next;
  return address - base < allocation.block->size() ? &allocation : nullptr;
}

}  // namespace xpud::drivers
