#include "drivers/frontend/virtual_memory.h"

#include <iterator>
#include <utility>

#include "drivers/frontend/handle_table.h"

namespace xpud::drivers {
namespace {

std::byte* Byte(const void* address) { return static_cast<std::byte*>(const_cast<void*>(address)); }

}  // namespace

VirtualMemory::~VirtualMemory() {
  MutexLock lock(mutex_);
  by_base_.clear();
  for (ze_physical_mem_handle_t memory : physical_) HandleTable::Remove<PhysicalMemory>(memory);
}

void VirtualMemory::Reserve(std::unique_ptr<AddressRange> range) {
  MutexLock lock(mutex_);
  std::byte* const base = range->base();
  by_base_[base] = std::make_unique<Reservation>(std::move(range));
}

ze_result_t VirtualMemory::Free(const void* base, size_t size) {
  MutexLock lock(mutex_);
  const auto found = by_base_.find(Byte(base));
  if (found == by_base_.end()) return ZE_RESULT_ERROR_INVALID_ARGUMENT;
  if (found->second->range().size() != size) return ZE_RESULT_ERROR_INVALID_SIZE;
  by_base_.erase(found);
  return ZE_RESULT_SUCCESS;
}

void VirtualMemory::Keep(ze_physical_mem_handle_t memory) {
  MutexLock lock(mutex_);
  physical_.insert(memory);
}

ze_result_t VirtualMemory::Forget(const PhysicalMemory& memory) {
  MutexLock lock(mutex_);
  for (const auto& [base, reservation] : by_base_)
    if (reservation->Maps(memory)) return ZE_RESULT_ERROR_HANDLE_OBJECT_IN_USE;
  physical_.erase(static_cast<ze_physical_mem_handle_t>(memory.handle()));
  return ZE_RESULT_SUCCESS;
}

ze_result_t VirtualMemory::Map(const void* address, size_t size, const PhysicalMemory& memory, size_t offset,
                               ze_memory_access_attribute_t access) {
  const size_t whole = memory.block().size();
  if (offset > whole || size > whole - offset) return ZE_RESULT_ERROR_INVALID_SIZE;
  MutexLock lock(mutex_);
  Reservation* const reservation = FindLocked(address, size);
  if (reservation == nullptr) return ZE_RESULT_ERROR_INVALID_ARGUMENT;
  return reservation->Map({Byte(address), size, &memory, offset}, access);
}

ze_result_t VirtualMemory::Unmap(const void* address, size_t size) {
  MutexLock lock(mutex_);
  Reservation* const reservation = FindLocked(address, size);
  if (reservation == nullptr) return ZE_RESULT_ERROR_INVALID_ARGUMENT;
  return reservation->Unmap(Byte(address), size);
}

ze_result_t VirtualMemory::SetAccess(const void* address, size_t size, ze_memory_access_attribute_t access) {
  MutexLock lock(mutex_);
  Reservation* const reservation = FindLocked(address, size);
  if (reservation == nullptr) return ZE_RESULT_ERROR_INVALID_ARGUMENT;
  return reservation->SetAccess(Byte(address), size, access);
}

ze_result_t VirtualMemory::GetAccess(const void* address, size_t size, ze_memory_access_attribute_t& access,
                                     size_t& same) const {
  MutexLock lock(mutex_);
  const Reservation* const reservation = FindLocked(address, size);
  if (reservation == nullptr) return ZE_RESULT_ERROR_INVALID_ARGUMENT;
  same = reservation->GetAccess(Byte(address), size, access);
  return ZE_RESULT_SUCCESS;
}

Reservation* VirtualMemory::FindLocked(const void* address, size_t size) const {
  const auto next = by_base_.upper_bound(Byte(address));
  if (next == by_base_.begin()) return nullptr;
  const auto& [base, reservation] = *std::prev(next);
  const size_t offset = static_cast<size_t>(Byte(address) - base);
  const size_t whole = reservation->range().size();
  return offset < whole && size <= whole - offset ? reservation.get() : nullptr;
}

}  // namespace xpud::drivers
