// Tells ASan which device memory is unallocated, so that our own copies that stray into it are found. Does
// nothing without ASan. Addresses need not be mapped in this process.
#pragma once

#include <cstddef>
#include <cstdint>

#if __has_feature(address_sanitizer)
#include <sanitizer/asan_interface.h>
#endif

namespace xpud::memory {

#if __has_feature(address_sanitizer)
inline void Poison(const void* address, uint64_t bytes) { __asan_poison_memory_region(address, bytes); }
inline void Unpoison(const void* address, uint64_t bytes) { __asan_unpoison_memory_region(address, bytes); }
inline bool IsPoisoned(const void* address, uint64_t bytes) {  // whether any byte is poisoned
  return __asan_region_is_poisoned(const_cast<void*>(address), bytes) != nullptr;
}
#else
inline void Poison(const void*, uint64_t) {}
inline void Unpoison(const void*, uint64_t) {}
inline bool IsPoisoned(const void*, uint64_t) { return false; }
#endif

}  // namespace xpud::memory
