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
      allocator.Free(victim->second);
      live.erase(victim);
      continue;
    }
    const uint64_t bytes = random() % 3 == 0 ? random() % (8 << 20) : random() % 20000;
    const auto range = allocator.Allocate(bytes);
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
  const auto a = *allocator.Allocate(10 << 20), b = *allocator.Allocate(20 << 20);
  EXPECT_FALSE(allocator.TakeFreeRegion(kRegion));
  allocator.Free(b);
  allocator.Free(a);
  EXPECT_EQ(allocator.TakeFreeRegion(kRegion), kRegion);
  EXPECT_FALSE(allocator.Allocate(1));
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
  while (const auto range = allocator.Allocate(1000)) ranges.push_back(*range);
  EXPECT_EQ(ranges.size(), kRegion / 1024);
  EXPECT_FALSE(allocator.Fits(2000));
  const auto last = ranges.back();
  ranges.pop_back();
  for (const auto& range : ranges) allocator.Free(range);
  EXPECT_TRUE(allocator.Fits(1000));
  EXPECT_FALSE(allocator.Fits(2000));
  allocator.ReturnSlabs();
  EXPECT_TRUE(allocator.Fits(2000) && allocator.Fits(kRegion - 2 * kSlabBytes));
  EXPECT_FALSE(allocator.Fits(kRegion - kSlabBytes + 1));
  allocator.Free(last);
}

TEST(RangeAllocator, ReturningSlabsIsPaidByAllocations) {
  RangeAllocator allocator;
  allocator.AddRegion(kRegion, kRegion);
  const auto range = *allocator.Allocate(1000);
  constexpr uint64_t kRanges = kSlabBytes / 1024;
  for (uint64_t i = 1; i < kRanges - 1; ++i) {
    EXPECT_FALSE(allocator.IsReturnPaid()) << i << " allocations, and as many free ranges as a slab has";
    allocator.Free(*allocator.Allocate(1000));
  }
  EXPECT_TRUE(allocator.IsReturnPaid());
  allocator.ReturnSlabs();
  EXPECT_FALSE(allocator.IsReturnPaid());
  allocator.Free(range);
  allocator.ReturnSlabs();
  EXPECT_TRUE(allocator.IsReturnPaid()) << "there are no free ranges";
}

}  // namespace
}  // namespace xpud::memory
