// Finds an extension structure in a descriptor's chain. Thread-safe.
#pragma once

#include <level_zero/ze_api.h>

namespace xpud::drivers {

// Returns null if the chain has no structure of this type.
template <typename T>
T* FindInChain(const void* next, ze_structure_type_t stype) {
  struct Header {  // the header of every extension structure
    ze_structure_type_t stype;
    const void* pNext;
  };
  for (auto* header = static_cast<const Header*>(next); header != nullptr;
       header = static_cast<const Header*>(header->pNext)) {
    if (header->stype == stype) return static_cast<T*>(const_cast<void*>(static_cast<const void*>(header)));
  }
  return nullptr;
}

inline bool IsOpaqueFdOnly(ze_external_memory_type_flags_t flags) {
  return flags == ZE_EXTERNAL_MEMORY_TYPE_FLAG_OPAQUE_FD;
}

}  // namespace xpud::drivers
