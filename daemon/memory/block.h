// A piece of device memory, charged to an account. A value.
#pragma once

#include <cstddef>
#include <cstdint>

#include "daemon/memory/ledger.h"

namespace xpud::memory {

struct Block {
  std::byte* address = nullptr;
  uint64_t bytes = 0;                  // size charged
  Ledger::Account* account = nullptr;  // owner
  uint64_t born = 0;                   // set by the owner: when the block was allocated, by its own count
};

}  // namespace xpud::memory
