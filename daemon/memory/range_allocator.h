// Cuts address ranges out of larger ones: small sizes from free lists by size class, large sizes best fit
// with coalescing. Hands out numbers, and never touches memory. Thread-compatible.
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
    uint64_t bytes = 0;   // rounded size
    uint32_t tenant = 0;  // label of the tenant whose data it may hold; 0: zeros
  };

  // Adds zeroed memory. Regions are never joined with each other.
  void AddRegion(uint64_t address, uint64_t bytes);
  // Returns a range of at least `bytes`, or nullopt if no region has space. Prefers ranges that `tenant` held
  // last.
  std::optional<Range> Allocate(uint64_t bytes, uint32_t tenant);
  // Frees a range that `tenant` held.
  void Free(const Range& range, uint32_t tenant);
  // Whether Allocate(bytes) would succeed.
  bool Fits(uint64_t bytes) const;
  // Turns slabs whose small ranges are all free into large ranges again. Looks at each free small range.
  void ReturnSlabs();
  // Whether there were as many allocations since slabs were last returned as ReturnSlabs would look at
  // ranges.
  bool IsReturnPaid() const { return allocations_ >= free_small_; }
  // Removes and returns a completely free region of at most `most` bytes, or nullopt if there is none.
  std::optional<uint64_t> TakeFreeRegion(uint64_t most);

  uint64_t used_bytes() const { return used_; }

 private:
  static constexpr int kClasses = 48;
  // Free ranges are joined whoever held them. Their parts, in order of addresses, keep their labels.
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
  // Splits off the first `bytes`. Returns the tenant whose data they may hold.
  static uint32_t Cut(Large& large, uint64_t bytes);
  bool AreNeighbours(uint64_t left_end, uint64_t right) const;

  std::array<std::vector<Range>, kClasses> small_;   // free ranges by class, last freed last
  std::map<uint64_t, Large> free_;                   // free large ranges by address
  std::set<std::pair<uint64_t, uint64_t>> by_size_;  // the same ranges as (bytes, address)
  std::map<uint64_t, uint64_t> regions_;             // address -> bytes
  struct Slab {
    uint64_t bytes;   // size of a range
    uint32_t tenant;  // label of the unused rest at the slab's end
  };
  std::map<uint64_t, Slab> slabs_;  // by address
  uint64_t used_ = 0;
  uint64_t free_small_ = 0;   // count of the ranges in small_
  uint64_t allocations_ = 0;  // since ReturnSlabs
};

}  // namespace xpud::memory
