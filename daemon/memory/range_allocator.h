// Cuts ranges of addresses out of larger ones: small sizes from free lists by size class, large ones best fit
// with coalescing. Knows nothing of devices: it hands out numbers. Thread-compatible; the engine thread uses
// it.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "proto/base/round_size.h"

namespace xpud::memory {

inline constexpr uint64_t kSlabBytes = 4 << 20;  // small ranges are cut from slabs of this size

class RangeAllocator {
 public:
  struct Range {
    uint64_t address = 0;
    uint64_t bytes = 0;   // rounded
    uint32_t tenant = 0;  // whose bytes may still be in it; 0: zeros
  };

  // Gives the allocator fresh, zeroed memory. Regions are never joined with each other.
  void AddRegion(uint64_t address, uint64_t bytes);
  // A range of at least `bytes`, or nothing when no region has room. Prefers ranges that `tenant` held last.
  std::optional<Range> Allocate(uint64_t bytes, uint32_t tenant);
  // Returns a range; `tenant` is who held it.
  void Free(const Range& range, uint32_t tenant);
  // Whether there is room for such a range.
  bool Fits(uint64_t bytes) const;
  // Joins small ranges to large ones again, where all of a slab are free.
  void ReturnSlabs();
  // A whole region that is free again, of at most `most` bytes, taken out of the allocator; nothing when all
  // are in use.
  std::optional<uint64_t> TakeFreeRegion(uint64_t most);

  uint64_t used_bytes() const { return used_; }

 private:
  static constexpr int kClasses = 48;
  // Free ranges are joined, whoever held them; their parts remain known, in the order of addresses.
  struct Part {
    uint64_t bytes;
    uint32_t tenant;
  };
  struct Large {
    uint64_t bytes = 0;
    std::vector<Part> parts = {};
  };
  static int ClassOf(uint64_t bytes);
  std::optional<Range> AllocateSmall(uint64_t bytes, uint32_t tenant);
  std::optional<Range> AllocateLarge(uint64_t bytes);
  void FreeLarge(const Range& range);
  void AddFree(uint64_t address, Large large);
  Large TakeFree(uint64_t address);
  static void Append(Large& to, const Large& more);
  // Takes the first `bytes` away; whose bytes may be in them.
  static uint32_t Cut(Large& large, uint64_t bytes);
  bool AreNeighbours(uint64_t left_end, uint64_t right) const;

  std::array<std::vector<Range>, kClasses> small_;   // free ranges by class, last freed last
  std::map<uint64_t, Large> free_;                   // free large ranges by address
  std::set<std::pair<uint64_t, uint64_t>> by_size_;  // the same as (bytes, address)
  std::map<uint64_t, uint64_t> regions_;             // address -> bytes
  struct Slab {
    uint64_t bytes;   // of one range
    uint32_t tenant;  // whose bytes may be in what is left over at its end
  };
  std::map<uint64_t, Slab> slabs_;  // by address
  uint64_t used_ = 0;
};

}  // namespace xpud::memory
