// Tells AddressSanitizer which device memory is unallocated, so that our own copies that stray into it are
// found. Does nothing in other builds. Addresses need not be mapped in this process.
#pragma once

#include <cstddef>
#include <cstdint>

#if __has_feature(address_sanitizer)
#include <sanitizer/asan_interface.h>
#endif

namespace xpud::memory {

#if __has_feature(address_sanitizer)
inline void ForbidAccess(const void* address, uint64_t bytes) { __asan_poison_memory_region(address, bytes); }
inline void AllowAccess(const void* address, uint64_t bytes) {
  __asan_unpoison_memory_region(address, bytes);
}
// Returns whether access to any of the bytes is forbidden.
inline bool IsAccessForbidden(const void* address, uint64_t bytes) {
  return __asan_region_is_poisoned(const_cast<void*>(address), bytes) != nullptr;
}
#else
inline void ForbidAccess(const void*, uint64_t) {}
inline void AllowAccess(const void*, uint64_t) {}
inline bool IsAccessForbidden(const void*, uint64_t) { return false; }
#endif

}  // namespace xpud::memory
