#include "daemon/memory/range_allocator.h"

#include <algorithm>
#include <map>
#include <random>

#include "gtest/gtest.h"

namespace xpud::memory {
namespace {

constexpr uint64_t kRegion = 64 << 20;

TEST(RangeAllocator, SizesRoundUpByAtMostAQuarter) {
  EXPECT_EQ(RoundSize(0), 512u);
  EXPECT_EQ(RoundSize(513), 1024u);
  EXPECT_EQ(RoundSize(1025), 1536u);
  for (uint64_t bytes = 4096; bytes <= kMaxSmallSize; bytes += 777) {
    EXPECT_GE(RoundSize(bytes), bytes);
    EXPECT_LE(RoundSize(bytes), bytes + bytes / 4);
    EXPECT_EQ(RoundSize(RoundSize(bytes)), RoundSize(bytes));
  }
}

TEST(RangeAllocator, LiveRangesNeverOverlap) {
  RangeAllocator allocator;
  allocator.AddRegion(kRegion, kRegion);
  allocator.AddRegion(2 * kRegion, kRegion);  // adjacent to the first: must not be joined
  std::mt19937 random(3);
  std::map<uint64_t, RangeAllocator::Range> live;
  for (int round = 0; round < 20000; ++round) {
    if (random() % 2 == 0 && !live.empty()) {
      auto victim = std::next(live.begin(), static_cast<long>(random() % live.size()));
      allocator.Free(victim->second, 1);
      live.erase(victim);
      continue;
    }
    const uint64_t bytes = random() % 3 == 0 ? random() % (8 << 20) : random() % 20000;
    const auto range = allocator.Allocate(bytes, 1);
    if (!range) continue;
    ASSERT_GE(range->bytes, bytes);
    ASSERT_EQ(range->address % kMemoryAlignment, 0u);
    ASSERT_EQ(range->address / kRegion, (range->address + range->bytes - 1) / kRegion) << "crosses regions";
    const auto next = live.lower_bound(range->address);
    if (next != live.end()) {
      ASSERT_LE(range->address + range->bytes, next->first);
    }
    if (next != live.begin()) {
      ASSERT_LE(std::prev(next)->first + std::prev(next)->second.bytes, range->address);
    }
    live.emplace(range->address, *range);
  }
  uint64_t used = 0;
  for (const auto& [address, range] : live) used += range.bytes;
  EXPECT_EQ(allocator.used_bytes(), used);
}

TEST(RangeAllocator, ARegionComesBackWhole) {
  RangeAllocator allocator;
  allocator.AddRegion(kRegion, kRegion);
  const auto a = *allocator.Allocate(10 << 20, 1), b = *allocator.Allocate(20 << 20, 1);
  EXPECT_FALSE(allocator.TakeFreeRegion(kRegion));
  allocator.Free(b, 1);
  allocator.Free(a, 1);
  EXPECT_EQ(allocator.TakeFreeRegion(kRegion), kRegion);
  EXPECT_FALSE(allocator.Allocate(1, 1));
}

TEST(RangeAllocator, OnlyRegionsThatAreNotTooLargeAreTaken) {
  RangeAllocator allocator;
  allocator.AddRegion(kRegion, kRegion);
  EXPECT_FALSE(allocator.TakeFreeRegion(kRegion - 1));
}

TEST(RangeAllocator, SlabsThatAreFreeAgainServeOtherSizes) {
  RangeAllocator allocator;
  allocator.AddRegion(kRegion, kRegion);
  std::vector<RangeAllocator::Range> ranges;
  while (const auto range = allocator.Allocate(1000, 1)) ranges.push_back(*range);
  EXPECT_EQ(ranges.size(), kRegion / 1024);
  EXPECT_FALSE(allocator.Fits(2000));
  const auto last = ranges.back();
  ranges.pop_back();
  for (const auto& range : ranges) allocator.Free(range, 1);
  EXPECT_TRUE(allocator.Fits(1000));
  EXPECT_FALSE(allocator.Fits(2000));
  allocator.ReturnSlabs();
  EXPECT_TRUE(allocator.Fits(2000) && allocator.Fits(kRegion - 2 * kSlabBytes));
  EXPECT_FALSE(allocator.Fits(kRegion - kSlabBytes + 1));
  EXPECT_NE(allocator.Allocate(8 << 20, 2)->tenant, 0u) << "somebody's bytes may be in it";
  allocator.Free(last, 1);
}

TEST(RangeAllocator, ReturningSlabsIsPaidByAllocations) {
  RangeAllocator allocator;
  allocator.AddRegion(kRegion, kRegion);
  const auto range = *allocator.Allocate(1000, 1);
  constexpr uint64_t kRanges = kSlabBytes / 1024;
  for (uint64_t i = 1; i < kRanges - 1; ++i) {
    EXPECT_FALSE(allocator.IsReturnPaid()) << i << " allocations, and as many free ranges as a slab has";
    allocator.Free(*allocator.Allocate(1000, 1), 1);
  }
  EXPECT_TRUE(allocator.IsReturnPaid());
  allocator.ReturnSlabs();
  EXPECT_FALSE(allocator.IsReturnPaid());
  allocator.Free(range, 1);
  allocator.ReturnSlabs();
  EXPECT_TRUE(allocator.IsReturnPaid()) << "there are no free ranges";
}

TEST(RangeAllocator, ARangeSaysWhoseBytesAreInIt) {
  RangeAllocator allocator;
  allocator.AddRegion(kRegion, kRegion);
  const auto fresh = *allocator.Allocate(4096, 7);
  EXPECT_EQ(fresh.tenant, 0u);
  allocator.Free(fresh, 7);
  EXPECT_EQ(allocator.Allocate(4096, 7)->address, fresh.address) << "the tenant's own range is preferred";
  const auto large = *allocator.Allocate(8 << 20, 7);
  allocator.Free(large, 7);
  EXPECT_NE(allocator.Allocate(60 << 20, 8).value_or(RangeAllocator::Range{0, 0, 1}).tenant, 0u);
}

TEST(RangeAllocator, OneTenantAloneIsNeverGivenBytesToBeZeroed) {
  RangeAllocator allocator;
  allocator.AddRegion(kRegion, kRegion);
  for (const uint64_t bytes : {16 << 20, 3000, 40 << 20, 20000, 64 << 20}) {
    for (int i = 0; i < 3; ++i) {
      const auto range = *allocator.Allocate(bytes, 7);
      EXPECT_TRUE(range.tenant == 0 || range.tenant == 7) << bytes << " bytes of " << range.tenant;
      allocator.Free(range, 7);
    }
    allocator.ReturnSlabs();
  }
}

TEST(RangeAllocator, NeighboursThatAreFreeStayWhoseTheyAre) {
  RangeAllocator allocator;
  allocator.AddRegion(kRegion, kRegion);
  const auto a = *allocator.Allocate(16 << 20, 7), b = *allocator.Allocate(16 << 20, 8);
  allocator.Free(a, 7);
  allocator.Free(b, 8);
  const auto again = *allocator.Allocate(16 << 20, 7);
  EXPECT_EQ(again.address, a.address);
  EXPECT_EQ(again.tenant, 7u);
  EXPECT_EQ(allocator.Allocate(8 << 20, 7)->tenant, 8u);
  const auto both = *allocator.Allocate(16 << 20, 7);
  EXPECT_EQ(both.tenant, 8u) << "half of it was never used, half has bytes of 8";
}

TEST(RangeAllocator, WhatASlabLeavesOverKeepsItsTenant) {
  constexpr uint64_t kOdd = 3072;  // leaves an unused rest of 1 KiB in a slab
  RangeAllocator allocator;
  allocator.AddRegion(kRegion, kRegion);
  allocator.Free(*allocator.Allocate(kRegion, 8), 8);
  std::vector<RangeAllocator::Range> ranges;
  for (uint64_t i = 0; i < kSlabBytes / kOdd; ++i) ranges.push_back(*allocator.Allocate(kOdd, 7));
  ASSERT_TRUE(allocator.Allocate(kRegion - kSlabBytes, 7))
      << "the rest, so that the slab is joined with nothing";
  for (const auto& range : ranges) allocator.Free(range, 7);
  allocator.ReturnSlabs();
  const auto whole = *allocator.Allocate(kSlabBytes, 7);
  EXPECT_TRUE(whole.tenant != 0 && whole.tenant != 7) << "it has bytes of 8 at its end";
}

// A model of memory: which tenant wrote last, in pieces of the minimum size.
TEST(RangeAllocator, TheLabelCoversEveryOtherTenantsData) {
  constexpr uint64_t kPiece = 512;
  RangeAllocator allocator;
  allocator.AddRegion(kRegion, kRegion);
  std::vector<uint8_t> written(kRegion / kPiece);  // tenant, or 0
  std::vector<std::pair<RangeAllocator::Range, uint32_t>> live;
  std::mt19937 random(5);
  int handed_over = 0, kept = 0;
  for (int round = 0; round < 30000; ++round) {
    if (random() % 64 == 0) allocator.ReturnSlabs();
    if (live.size() > 40 || (random() % 2 == 0 && !live.empty())) {
      std::swap(live[random() % live.size()], live.back());
      allocator.Free(live.back().first, live.back().second);
      live.pop_back();
      continue;
    }
    const uint32_t tenant = 1 + random() % 3;
    const auto range =
        allocator.Allocate(random() % 3 == 0 ? random() % (8 << 20) : random() % 200'000, tenant);
    if (!range) continue;
    const auto begin = written.begin() + static_cast<ptrdiff_t>((range->address - kRegion) / kPiece);
    const auto end = begin + static_cast<ptrdiff_t>(range->bytes / kPiece);
    const bool zeroed = range->tenant != 0 && range->tenant != tenant;
    ASSERT_TRUE(zeroed ||
                std::all_of(begin, end, [&](uint8_t whose) { return whose == 0 || whose == tenant; }))
        << range->bytes << " bytes said to be of " << range->tenant << ", for " << tenant;
    std::fill(begin, end, static_cast<uint8_t>(tenant));
    (zeroed ? handed_over : kept) += 1;
    live.emplace_back(*range, tenant);
  }
  EXPECT_GT(handed_over, 1000);
  EXPECT_GT(kept, 1000);
}

}  // namespace
}  // namespace xpud::memory
