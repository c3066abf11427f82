// A context's reserved addresses and physical memory. Thread-safe.
#pragma once

#include <level_zero/ze_api.h>

#include <map>
#include <memory>
#include <set>

#include "drivers/frontend/reservation.h"
#include "proto/base/mutex.h"

namespace xpud::drivers {

// Ranges of the functions are whole pages. They return INVALID_ARGUMENT for a range that is not within one
// reservation.
class VirtualMemory {
 public:
  VirtualMemory() = default;
  VirtualMemory(const VirtualMemory&) = delete;
  VirtualMemory& operator=(const VirtualMemory&) = delete;
  // Frees all addresses, then all physical memory.
  ~VirtualMemory();

  void Reserve(std::unique_ptr<AddressRange> range) ABSL_LOCKS_EXCLUDED(mutex_);
  // Frees a whole reservation. Returns INVALID_SIZE if it has another size.
  ze_result_t Free(const void* base, size_t size) ABSL_LOCKS_EXCLUDED(mutex_);

  // Keeps physical memory until the context ends, or Forget returns SUCCESS.
  void Keep(ze_physical_mem_handle_t memory) ABSL_LOCKS_EXCLUDED(mutex_);
  // Returns HANDLE_OBJECT_IN_USE if it is mapped.
  ze_result_t Forget(const PhysicalMemory& memory) ABSL_LOCKS_EXCLUDED(mutex_);

  // Returns INVALID_SIZE if the physical memory ends before the range.
  ze_result_t Map(const void* address, size_t size, const PhysicalMemory& memory, size_t offset,
                  ze_memory_access_attribute_t access) ABSL_LOCKS_EXCLUDED(mutex_);
  ze_result_t Unmap(const void* address, size_t size) ABSL_LOCKS_EXCLUDED(mutex_);
  ze_result_t SetAccess(const void* address, size_t size, ze_memory_access_attribute_t access)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // `same` receives the number of bytes, from the first on, that have the access attribute of the first.
  ze_result_t GetAccess(const void* address, size_t size, ze_memory_access_attribute_t& access,
                        size_t& same) const ABSL_LOCKS_EXCLUDED(mutex_);

  // Calls `read(const MappedMemory&)` under the lock for what is mapped at `address`. Returns false if
  // nothing is.
  template <typename Read>
  bool Visit(const void* address, Read&& read) const ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(mutex_);
    const Reservation* const reservation = FindLocked(address, 1);
    const MappedMemory* const mapped =
        reservation == nullptr ? nullptr : reservation->Find(static_cast<const std::byte*>(address));
    if (mapped == nullptr) return false;
    read(*mapped);
    return true;
  }

 private:
  Reservation* FindLocked(const void* address, size_t size) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable Mutex mutex_;
  std::map<const std::byte*, std::unique_ptr<Reservation>> by_base_ ABSL_GUARDED_BY(mutex_);
  std::set<ze_physical_mem_handle_t> physical_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace xpud::drivers
