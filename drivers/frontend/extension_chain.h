// Finding an extension structure in the chain that hangs off a descriptor. Any thread.
#pragma once

#include <level_zero/ze_api.h>

namespace xpud::drivers {

// Null when the chain has no structure of this type.
template <typename T>
T* FindInChain(const void* next, ze_structure_type_t stype) {
  struct Header {  // the head that every extension structure has
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
