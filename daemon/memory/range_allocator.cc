#include "daemon/memory/range_allocator.h"

#include <algorithm>
#include <bit>

namespace xpud::memory {
namespace {

constexpr uint32_t kMixed = ~0u;  // of several tenants: zeroed for everybody

}  // namespace

int RangeAllocator::ClassOf(uint64_t bytes) {
  const int power = std::bit_width(bytes) - 1;
  return (power - 9) * 4 + static_cast<int>((bytes >> (power - 2)) & 3);
}

void RangeAllocator::AddRegion(uint64_t address, uint64_t bytes) {
  regions_.emplace(address, bytes);
  FreeLarge({address, bytes, 0});
}

std::optional<RangeAllocator::Range> RangeAllocator::Allocate(uint64_t bytes, uint32_t tenant) {
  const uint64_t rounded = RoundSize(bytes);
  auto range = rounded <= kLargestSmallSize ? AllocateSmall(rounded, tenant) : AllocateLarge(rounded, tenant);
  if (range) used_ += range->bytes;
  return range;
}

std::optional<RangeAllocator::Range> RangeAllocator::AllocateSmall(uint64_t bytes, uint32_t tenant) {
  std::vector<Range>& free = small_[ClassOf(bytes)];
  if (free.empty()) {
    const auto slab = AllocateLarge(kSlabBytes, tenant);
    if (!slab) return std::nullopt;
    const uint64_t count = slab->bytes / bytes;
    slabs_.emplace(slab->address, bytes);
    for (uint64_t i = count; i-- > 0;) free.push_back({slab->address + i * bytes, bytes, slab->tenant});
  }
  // One of the last few that needs no zeroing, else the last.
  constexpr ptrdiff_t kLook = 8;
  const auto limit = free.rbegin() + std::min<ptrdiff_t>(kLook, std::ssize(free));
  const auto own =
      std::find_if(free.rbegin(), limit, [&](const Range& r) { return r.tenant == tenant || r.tenant == 0; });
  const auto chosen = own == limit ? free.end() - 1 : std::next(own).base();
  const Range range = *chosen;
  *chosen = free.back();
  free.pop_back();
  return range;
}

std::optional<RangeAllocator::Range> RangeAllocator::AllocateLarge(uint64_t bytes, uint32_t) {
  const auto fit = by_size_.lower_bound({bytes, 0});
  if (fit == by_size_.end()) return std::nullopt;
  const auto [available, address] = *fit;
  const uint32_t holder = free_.at(address).tenant;
  by_size_.erase(fit);
  free_.erase(address);
  if (available > bytes) {
    free_.emplace(address + bytes, Large{available - bytes, holder});
    by_size_.emplace(available - bytes, address + bytes);
  }
  return Range{address, bytes, holder};
}

void RangeAllocator::Free(const Range& range, uint32_t tenant) {
  used_ -= range.bytes;
  const Range held = {range.address, range.bytes, tenant};
  if (range.bytes <= kLargestSmallSize) {
    small_[ClassOf(range.bytes)].push_back(held);
  } else {
    FreeLarge(held);
  }
}

bool RangeAllocator::AreNeighbours(uint64_t left_end, uint64_t right) const {
  return left_end == right && !regions_.contains(right);
}

// Joins with the free neighbours. Ranges of different holders join to one that must be zeroed for everybody.
void RangeAllocator::FreeLarge(Range range) {
  const auto absorb = [&](std::map<uint64_t, Large>::iterator other) {
    if (other->second.tenant != range.tenant) range.tenant = kMixed;
    range.address = std::min(range.address, other->first);
    range.bytes += other->second.bytes;
    by_size_.erase({other->second.bytes, other->first});
    free_.erase(other);
  };
  if (auto next = free_.find(range.address + range.bytes);
      next != free_.end() && AreNeighbours(range.address + range.bytes, next->first))
    absorb(next);
  if (auto next = free_.lower_bound(range.address); next != free_.begin()) {
    const auto previous = std::prev(next);
    if (AreNeighbours(previous->first + previous->second.bytes, range.address)) absorb(previous);
  }
  free_.emplace(range.address, Large{range.bytes, range.tenant});
  by_size_.emplace(range.bytes, range.address);
}

bool RangeAllocator::Fits(uint64_t bytes) const {
  const uint64_t rounded = RoundSize(bytes);
  const bool small = rounded <= kLargestSmallSize;
  if (small && !small_[ClassOf(rounded)].empty()) return true;
  return by_size_.lower_bound({small ? kSlabBytes : rounded, 0}) != by_size_.end();
}

void RangeAllocator::ReturnSlabs() {
  const auto slab_of = [&](uint64_t address) { return std::prev(slabs_.upper_bound(address))->first; };
  std::map<uint64_t, uint64_t> free;  // by slab
  for (const auto& ranges : small_) {
    for (const Range& range : ranges) ++free[slab_of(range.address)];
  }
  std::erase_if(free, [&](const auto& slab) { return slab.second < kSlabBytes / slabs_.at(slab.first); });
  if (free.empty()) return;
  for (auto& ranges : small_)
    std::erase_if(ranges, [&](const Range& range) { return free.contains(slab_of(range.address)); });
  for (const auto& [address, count] : free) {
    slabs_.erase(address);
    FreeLarge({address, kSlabBytes, kMixed});
  }
}

std::optional<uint64_t> RangeAllocator::TakeFreeRegion(uint64_t most) {
  for (const auto& [address, bytes] : regions_) {
    if (bytes > most) continue;
    const auto found = free_.find(address);
    if (found == free_.end() || found->second.bytes != bytes) continue;
    const uint64_t taken = address;
    by_size_.erase({bytes, address});
    free_.erase(found);
    regions_.erase(taken);
    return taken;
  }
  return std::nullopt;
}

}  // namespace xpud::memory
