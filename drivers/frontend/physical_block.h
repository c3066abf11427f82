// Interface of memory without an address, which address ranges map. Destroying it frees the memory as soon as
// nothing maps it. Immutable; thread-safe.
#pragma once

#include <level_zero/ze_api.h>

#include <cstddef>

namespace xpud::drivers {

class PhysicalBlock {
 public:
  PhysicalBlock() = default;
  PhysicalBlock(const PhysicalBlock&) = delete;
  PhysicalBlock& operator=(const PhysicalBlock&) = delete;
  virtual ~PhysicalBlock() = default;

  virtual size_t size() const = 0;
  // Returns a new fd that the caller owns. REQUIRES: the memory was made exportable, or imported.
  virtual ze_result_t Export(int& fd) const = 0;
};

}  // namespace xpud::drivers
