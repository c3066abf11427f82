// A piece of device memory, charged to an account. A value.
#pragma once

#include <cstddef>
#include <cstdint>

#include "daemon/memory/ledger.h"

namespace xpud::memory {

struct SharedAllocation;

struct Block {
  std::byte* address = nullptr;
  uint64_t bytes = 0;                  // size charged
  Ledger::Account* account = nullptr;  // owner
  union {
    uint64_t born = 0;         // set by the owner: when the block was allocated, by its own count
    SharedAllocation* shared;  // of a buffer's allocation that is_shared: the one that counts
  };
};

}  // namespace xpud::memory
