#include "daemon/executor/api/address_space.h"

#include <gtest/gtest.h>

#include "proto/base/ze_ext.h"

namespace xpud::executor {
namespace {

TEST(AddressSpace, GivesTheLowestRangeThatIsFree) {
  AddressSpace space = *AddressSpace::ForChunks(0);
  const uint64_t first = *space.Take(1);
  const uint64_t second = *space.Take(3 * XPUD_MEM_ADDRESS_UNIT);
  const uint64_t third = *space.Take(1);
  EXPECT_EQ(first % XPUD_MEM_ADDRESS_UNIT, 0u);
  EXPECT_EQ(second, first + XPUD_MEM_ADDRESS_UNIT);
  EXPECT_EQ(third, second + 3 * XPUD_MEM_ADDRESS_UNIT);
  space.Return(second);
  EXPECT_EQ(*space.Take(4 * XPUD_MEM_ADDRESS_UNIT), third + XPUD_MEM_ADDRESS_UNIT);  // does not fit there
  EXPECT_EQ(*space.Take(2 * XPUD_MEM_ADDRESS_UNIT), second);
  EXPECT_EQ(*space.Take(XPUD_MEM_ADDRESS_UNIT), second + 2 * XPUD_MEM_ADDRESS_UNIT);
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
