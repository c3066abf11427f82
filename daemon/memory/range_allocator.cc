#include "daemon/memory/range_allocator.h"

#include <algorithm>
#include <bit>

namespace xpud::memory {
namespace {

constexpr uint32_t kMixed = ~0u;  // data of several tenants: zeroed for every tenant

// Returns the label of two joined ranges. Zeros carry no label, so memory is never zeroed if there is only
// one tenant.
uint32_t JoinLabels(uint32_t tenant, uint32_t other) {
  if (tenant == 0 || other == 0) return tenant | other;
  return tenant == other ? tenant : kMixed;
}

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
  auto range = rounded <= kMaxSmallSize ? AllocateSmall(rounded, tenant) : AllocateLarge(rounded);
  if (range) used_ += range->bytes;
  ++allocations_;
  return range;
}

std::optional<RangeAllocator::Range> RangeAllocator::AllocateSmall(uint64_t bytes, uint32_t tenant) {
  std::vector<Range>& free = small_[ClassOf(bytes)];
  if (free.empty()) {
    const auto slab = AllocateLarge(kSlabBytes);
    if (!slab) return std::nullopt;
    const uint64_t count = slab->bytes / bytes;
    slabs_.emplace(slab->address, Slab{bytes, slab->tenant});
    free_small_ += count;
    for (uint64_t i = count; i-- > 0;) free.push_back({slab->address + i * bytes, bytes, slab->tenant});
  }
  // Prefer one of the last few ranges that needs no zeroing; otherwise take the last.
  constexpr ptrdiff_t kMaxSearch = 8;
  const auto limit = free.rbegin() + std::min<ptrdiff_t>(kMaxSearch, std::ssize(free));
  const auto own =
      std::find_if(free.rbegin(), limit, [&](const Range& r) { return r.tenant == tenant || r.tenant == 0; });
  const auto chosen = own == limit ? free.end() - 1 : std::next(own).base();
  const Range range = *chosen;
  *chosen = free.back();
  free.pop_back();
  --free_small_;
  return range;
}

void RangeAllocator::AddFree(uint64_t address, Large large) {
  by_size_.emplace(large.bytes, address);
  free_.emplace(address, std::move(large));
}

RangeAllocator::Large RangeAllocator::TakeFree(uint64_t address) {
  Large large = std::move(free_.extract(address).mapped());
  by_size_.erase({large.bytes, address});
  return large;
}

void RangeAllocator::Append(Large& to, const Large& more) {
  to.bytes += more.bytes;
  for (const Part& part : more.parts) {
    if (!to.parts.empty() && to.parts.back().tenant == part.tenant) {
      to.parts.back().bytes += part.bytes;
    } else {
      to.parts.push_back(part);
    }
  }
}

uint32_t RangeAllocator::Cut(Large& large, uint64_t bytes) {
  large.bytes -= bytes;
  uint32_t tenant = 0;
  auto part = large.parts.begin();
  while (bytes > 0) {
    const uint64_t taken = std::min(bytes, part->bytes);
    tenant = JoinLabels(tenant, part->tenant);
    part->bytes -= taken;
    bytes -= taken;
    if (part->bytes == 0) ++part;
  }
  large.parts.erase(large.parts.begin(), part);
  return tenant;
}

std::optional<RangeAllocator::Range> RangeAllocator::AllocateLarge(uint64_t bytes) {
  const auto fit = by_size_.lower_bound({bytes, 0});
  if (fit == by_size_.end()) return std::nullopt;
  const uint64_t address = fit->second;
  Large large = TakeFree(address);
  const uint32_t holder = Cut(large, bytes);
  if (large.bytes > 0) AddFree(address + bytes, std::move(large));
  return Range{address, bytes, holder};
}

void RangeAllocator::Free(const Range& range, uint32_t tenant) {
  used_ -= range.bytes;
  const Range held = {range.address, range.bytes, tenant};
  if (range.bytes <= kMaxSmallSize) {
    small_[ClassOf(range.bytes)].push_back(held);
    ++free_small_;
  } else {
    FreeLarge(held);
  }
}

bool RangeAllocator::AreNeighbours(uint64_t left_end, uint64_t right) const {
  return left_end == right && !regions_.contains(right);
}

// Coalesces the range with free neighbours.
void RangeAllocator::FreeLarge(const Range& range) {
  uint64_t address = range.address;
  Large joined = {range.bytes, {{range.bytes, range.tenant}}};
  const uint64_t end = address + range.bytes;
  if (free_.contains(end) && AreNeighbours(end, end)) Append(joined, TakeFree(end));
  if (auto next = free_.lower_bound(address); next != free_.begin()) {
    const auto& [begin, previous] = *std::prev(next);
    if (AreNeighbours(begin + previous.bytes, address)) {
      address = begin;
      Large first = TakeFree(begin);
      Append(first, joined);
      joined = std::move(first);
    }
  }
  AddFree(address, std::move(joined));
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
  struct FreeRanges {
    uint64_t count = 0;
    uint32_t tenant = 0;
  };
  std::map<uint64_t, FreeRanges> free;  // by address of the slab
  for (const auto& ranges : small_) {
    for (const Range& range : ranges) {
      FreeRanges& of_slab = free[slab_of(range.address)];
      ++of_slab.count;
      of_slab.tenant = JoinLabels(of_slab.tenant, range.tenant);
    }
  }
  std::erase_if(free, [&](const auto& entry) {
    return entry.second.count < kSlabBytes / slabs_.at(entry.first).bytes;
  });
  if (free.empty()) return;
  for (auto& ranges : small_)
    free_small_ -=
        std::erase_if(ranges, [&](const Range& range) { return free.contains(slab_of(range.address)); });
  for (const auto& [address, ranges] : free) {
    const uint32_t tenant = JoinLabels(ranges.tenant, slabs_.at(address).tenant);
    slabs_.erase(address);
    FreeLarge({address, kSlabBytes, tenant});
  }
}

std::optional<uint64_t> RangeAllocator::TakeFreeRegion(uint64_t most) {
  for (const auto& [address, bytes] : regions_) {
    if (bytes > most) continue;
    const auto found = free_.find(address);
    if (found == free_.end() || found->second.bytes != bytes) continue;
    const uint64_t taken = address;
    TakeFree(taken);
    regions_.erase(taken);
    return taken;
  }
  return std::nullopt;
}

}  // namespace xpud::memory
