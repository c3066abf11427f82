#include "daemon/executor/api/address_space.h"

#include <gtest/gtest.h>

#include <optional>
#include <utility>
#include <vector>

namespace xpud::executor {
namespace {

constexpr uint64_t kUnit = AddressSpace::kChunkUnit;

TEST(AddressSpace, GivesTheLowestRangeThatIsFree) {
  AddressSpace space = *AddressSpace::ForChunks();
  const uint64_t first = *space.Take(1);
  const uint64_t second = *space.Take(3 * kUnit - 1);
  const uint64_t third = *space.Take(1);
  EXPECT_EQ(first % kUnit, 0u);
  EXPECT_EQ(second, first + kUnit);
  EXPECT_EQ(third, second + 3 * kUnit);
  space.Return(second);
  EXPECT_EQ(*space.Take(4 * kUnit), third + kUnit);  // does not fit there
  EXPECT_EQ(*space.Take(2 * kUnit), second);
  EXPECT_EQ(*space.Take(kUnit), second + 2 * kUnit);
}

TEST(AddressSpace, RangesThatAreReturnedBecomeOne) {
  AddressSpace space = *AddressSpace::ForChunks();
  std::vector<uint64_t> taken;
  for (int i = 0; i < 5; ++i) taken.push_back(*space.Take(kUnit));
  for (const int i : {1, 3, 2}) space.Return(taken[i]);
  EXPECT_EQ(*space.Take(3 * kUnit), taken[1]);
  space.Return(taken[2]);  // is none of its ranges
  EXPECT_GT(*space.Take(kUnit), taken[4]);
}

TEST(AddressSpace, SaysWhenThereIsNoRoom) {
  AddressSpace space = *AddressSpace::ForHostMemory(1);
  EXPECT_EQ(space.Take(uint64_t{1} << 50).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(space.Take(UINT64_MAX).status().code(), absl::StatusCode::kResourceExhausted);
  const uint64_t half = *space.Take(uint64_t{1} << 35);
  EXPECT_TRUE(space.Take(uint64_t{1} << 35).ok());
  EXPECT_EQ(space.Take(1).status().code(), absl::StatusCode::kResourceExhausted);
  space.Return(half);
  EXPECT_EQ(*space.Take(1), half);
}

// Seven tebibytes, if all chunks are of the usual least size.
TEST(AddressSpace, HasRoomForManyLargeDevicesInSmallChunks) {
  constexpr uint64_t kChunk = uint64_t{16} << 20, kDeviceMemory = uint64_t{1} << 40;
  std::vector<AddressSpace> devices;
  for (int device = 0; device < 7; ++device) {
    devices.push_back(*AddressSpace::ForChunks());
    for (uint64_t chunk = 0; chunk < kDeviceMemory / kChunk; ++chunk)
      ASSERT_TRUE(devices.back().Take(kChunk).ok()) << device << ": " << chunk;
  }
}

TEST(AddressSpace, DevicesAndKindsOfMemoryDoNotMeet) {
  AddressSpace zero = *AddressSpace::ForChunks(), one = *AddressSpace::ForChunks();
  const uint64_t first = *zero.Take(1), second = *one.Take(1);
  EXPECT_EQ(second, first + kUnit);
  one.Return(first);
  EXPECT_EQ(*one.Take(1), second + kUnit) << "it was another device's";
  const uint64_t host = *AddressSpace::ForHostMemory(0)->Take(1);
  const uint64_t client = *AddressSpace::ForClientMemory(0)->Take(1);
  EXPECT_EQ(*AddressSpace::ForHostMemory(15)->Take(uint64_t{1} << 36) + (uint64_t{1} << 36), client);
  EXPECT_EQ(*AddressSpace::ForHostMemory(1)->Take(1), host + (uint64_t{1} << 36));
  EXPECT_EQ(*AddressSpace::ForClientMemory(1)->Take(1), client + (uint64_t{1} << 40));
  EXPECT_LE(*AddressSpace::ForClientMemory(15)->Take(uint64_t{1} << 40) + (uint64_t{1} << 40), first);
  EXPECT_FALSE(AddressSpace::ForHostMemory(16).ok());
  EXPECT_FALSE(AddressSpace::ForClientMemory(16).ok());
}

TEST(AddressSpace, ReturnsWhatItHasWhenItEnds) {
  std::optional<AddressSpace> space = *AddressSpace::ForChunks();
  const uint64_t first = *space->Take(1);
  AddressSpace other = *std::exchange(space, std::nullopt);
  EXPECT_GT(*AddressSpace::ForChunks()->Take(1), first) << "it was moved";
  space = std::move(other);
  space.reset();
  EXPECT_EQ(*AddressSpace::ForChunks()->Take(1), first);
}

}  // namespace
}  // namespace xpud::executor
