// Interface of a memory range. A context's allocations own it; destroying it frees the memory. Immutable;
// thread-safe.
#pragma once

#include <level_zero/ze_api.h>

#include <cstddef>

namespace xpud::drivers {

class MemoryBlock {
 public:
  MemoryBlock() = default;
  MemoryBlock(const MemoryBlock&) = delete;
  MemoryBlock& operator=(const MemoryBlock&) = delete;
  virtual ~MemoryBlock() = default;

  virtual void* base() const = 0;
  virtual size_t size() const = 0;
  // The page size that the memory has or is likely to have.
  virtual size_t page_size() const = 0;
  // Returns a new fd that the caller owns. REQUIRES: the memory was made exportable, or imported.
  virtual ze_result_t Export(int& fd) const = 0;
};

}  // namespace xpud::drivers
