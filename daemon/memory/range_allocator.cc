#include "daemon/memory/range_allocator.h"

#include <algorithm>
#include <bit>

namespace xpud::memory {

int RangeAllocator::ClassOf(uint64_t bytes) {
  const int power = std::bit_width(bytes) - 1;
  return (power - 9) * 4 + static_cast<int>((bytes >> (power - 2)) & 3);
}

void RangeAllocator::AddRegion(uint64_t address, uint64_t bytes) {
  regions_.emplace(address, bytes);
  AddFree(address, bytes);
}

std::optional<RangeAllocator::Range> RangeAllocator::Allocate(uint64_t bytes) {
  const uint64_t rounded = RoundSize(bytes);
  auto range = rounded <= kMaxSmallSize ? AllocateSmall(rounded) : AllocateLarge(rounded);
  if (range) used_ += range->bytes;
  ++allocations_;
  return range;
}

std::optional<RangeAllocator::Range> RangeAllocator::AllocateSmall(uint64_t bytes) {
  std::vector<uint64_t>& free = small_[ClassOf(bytes)];
  if (free.empty()) {
    const auto slab = AllocateLarge(kSlabBytes);
    if (!slab) return std::nullopt;
    const uint64_t count = slab->bytes / bytes;
    slabs_.emplace(slab->address, bytes);
    free_small_ += count;
    for (uint64_t i = count; i-- > 0;) free.push_back(slab->address + i * bytes);
  }
  const Range range = {free.back(), bytes};
  free.pop_back();
  --free_small_;
  return range;
}

void RangeAllocator::AddFree(uint64_t address, uint64_t bytes) {
  by_size_.emplace(bytes, address);
  free_.emplace(address, bytes);
}

uint64_t RangeAllocator::TakeFree(uint64_t address) {
  const uint64_t bytes = free_.extract(address).mapped();
  by_size_.erase({bytes, address});
  return bytes;
}

std::optional<RangeAllocator::Range> RangeAllocator::AllocateLarge(uint64_t bytes) {
  const auto fit = by_size_.lower_bound({bytes, 0});
  if (fit == by_size_.end()) return std::nullopt;
  const uint64_t address = fit->second, found = TakeFree(address);
  if (found > bytes) AddFree(address + bytes, found - bytes);
  return Range{address, bytes};
}

void RangeAllocator::Free(const Range& range) {
  used_ -= range.bytes;
  if (range.bytes <= kMaxSmallSize) {
    small_[ClassOf(range.bytes)].push_back(range.address);
    ++free_small_;
  } else {
    FreeLarge(range);
  }
}

bool RangeAllocator::AreNeighbours(uint64_t left_end, uint64_t right) const {
  return left_end == right && !regions_.contains(right);
}

// Coalesces the range with free neighbours.
void RangeAllocator::FreeLarge(const Range& range) {
  uint64_t address = range.address, end = address + range.bytes;
  if (free_.contains(end) && AreNeighbours(end, end)) end += TakeFree(end);
  if (const auto next = free_.lower_bound(address); next != free_.begin()) {
    const auto [begin, bytes] = *std::prev(next);
    if (AreNeighbours(begin + bytes, address)) {
      TakeFree(begin);
      address = begin;
    }
  }
  AddFree(address, end - address);
}

bool RangeAllocator::Fits(uint64_t bytes) const {
  const uint64_t rounded = RoundSize(bytes);
  const bool small = rounded <= kMaxSmallSize;
  if (small && !small_[ClassOf(rounded)].empty()) return true;
  return by_size_.lower_bound({small ? kSlabBytes : rounded, 0}) != by_size_.end();
}

void RangeAllocator::ReturnSlabs() {
  allocations_ = 0;
  const auto slab_of = [&](uint64_t address) { return std::prev(slabs_.upper_bound(address))->first; };
  std::map<uint64_t, uint64_t> free;  // address of the slab -> its free ranges
  for (const auto& addresses : small_) {
    for (const uint64_t address : addresses) ++free[slab_of(address)];
  }
  std::erase_if(free, [&](const auto& entry) { return entry.second < kSlabBytes / slabs_.at(entry.first); });
  if (free.empty()) return;
  for (auto& addresses : small_)
    free_small_ -=
        std::erase_if(addresses, [&](uint64_t address) { return free.contains(slab_of(address)); });
  for (const auto& [address, count] : free) {
    slabs_.erase(address);
    FreeLarge({address, kSlabBytes});
  }
}

std::optional<uint64_t> RangeAllocator::TakeFreeRegion(uint64_t most) {
  for (const auto& [address, bytes] : regions_) {
    if (bytes > most) continue;
    const auto found = free_.find(address);
    if (found == free_.end() || found->second != bytes) continue;
    const uint64_t taken = address;
    TakeFree(taken);
    regions_.erase(taken);
    return taken;
  }
  return std::nullopt;
}

}  // namespace xpud::memory
