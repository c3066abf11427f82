#include "daemon/executor/api/address_space.h"

#include <gtest/gtest.h>

namespace xpud::executor {
namespace {

constexpr uint64_t kUnit = AddressSpace::kChunkUnit;

TEST(AddressSpace, GivesTheLowestRangeThatIsFree) {
  AddressSpace space = *AddressSpace::ForChunks(0);
  const uint64_t first = *space.Take(1);
  const uint64_t second = *space.Take(3 * kUnit);
  const uint64_t third = *space.Take(1);
  EXPECT_EQ(first % kUnit, 0u);
  EXPECT_EQ(second, first + kUnit);
  EXPECT_EQ(third, second + 3 * kUnit);
  space.Return(second);
  EXPECT_EQ(*space.Take(4 * kUnit), third + kUnit);  // does not fit there
  EXPECT_EQ(*space.Take(2 * kUnit), second);
  EXPECT_EQ(*space.Take(kUnit), second + 2 * kUnit);
}

TEST(AddressSpace, SaysWhenThereIsNoRoom) {
  AddressSpace space = *AddressSpace::ForHostMemory(1);
  EXPECT_EQ(space.Take(uint64_t{1} << 50).status().code(), absl::StatusCode::kResourceExhausted);
  const uint64_t half = *space.Take(uint64_t{1} << 35);
  EXPECT_TRUE(space.Take(uint64_t{1} << 35).ok());
  EXPECT_EQ(space.Take(1).status().code(), absl::StatusCode::kResourceExhausted);
  space.Return(half);
  EXPECT_EQ(*space.Take(1), half);
}

TEST(AddressSpace, DevicesAndKindsOfMemoryDoNotMeet) {
  const uint64_t zero = *AddressSpace::ForChunks(0)->Take(1), one = *AddressSpace::ForChunks(1)->Take(1);
  const uint64_t host = *AddressSpace::ForHostMemory(0)->Take(1);
  const uint64_t client = *AddressSpace::ForClientMemory(0)->Take(1);
  EXPECT_LT(host, zero);
  EXPECT_GE(client, *AddressSpace::ForChunks(15)->Take(1) + (uint64_t{1} << 38));
  EXPECT_GE(*AddressSpace::ForClientMemory(1)->Take(1) - client, uint64_t{1} << 40);
  EXPECT_GE(one - zero, uint64_t{1} << 39);
  EXPECT_FALSE(AddressSpace::ForChunks(16).ok());
}

}  // namespace
}  // namespace xpud::executor
