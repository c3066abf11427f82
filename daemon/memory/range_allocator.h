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
    uint64_t bytes = 0;  // rounded size
  };

  // Regions are never joined with each other.
  void AddRegion(uint64_t address, uint64_t bytes);
  // Returns a range of at least `bytes`, or nullopt if no region has space.
  std::optional<Range> Allocate(uint64_t bytes);
  void Free(const Range& range);
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
  static int ClassOf(uint64_t bytes);
  std::optional<Range> AllocateSmall(uint64_t bytes);
  std::optional<Range> AllocateLarge(uint64_t bytes);
  void FreeLarge(const Range& range);
  void AddFree(uint64_t address, uint64_t bytes);
  // Returns the bytes of the free range at `address`.
  uint64_t TakeFree(uint64_t address);
  bool AreNeighbours(uint64_t left_end, uint64_t right) const;

  std::array<std::vector<uint64_t>, kClasses> small_;  // addresses of free ranges by class, last freed last
  std::map<uint64_t, uint64_t> free_;                  // free large ranges: address -> bytes
  std::set<std::pair<uint64_t, uint64_t>> by_size_;    // the same ranges as (bytes, address)
  std::map<uint64_t, uint64_t> regions_;               // address -> bytes
  std::map<uint64_t, uint64_t> slabs_;                 // address -> size of a range
  uint64_t used_ = 0;
  uint64_t free_small_ = 0;   // count of the ranges in small_
  uint64_t allocations_ = 0;  // since ReturnSlabs
};

}  // namespace xpud::memory
