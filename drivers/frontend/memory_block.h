// A range of memory at the seam, owned by a context's allocations until it is freed, which gives the memory
// back. Immutable; any thread.
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
  // The page size that it has or is likely to have.
  virtual size_t page_size() const = 0;
  // A new fd that the caller owns; only for memory that was made exportable, or imported.
  virtual ze_result_t Export(int& fd) const = 0;
};

}  // namespace xpud::drivers
