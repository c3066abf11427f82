// The memory pool of a device, over a device that has only memory.
#include "daemon/memory/pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <vector>

#include "daemon/lane/testing/memory_device.h"

namespace xpud::memory {
namespace {

constexpr uint64_t kMebibyte = uint64_t{1} << 20;

class PoolTest : public testing::Test {
 protected:
  Block Allocate(uint64_t bytes) {
    const auto block = pool_.Allocate(bytes, account_);
    EXPECT_TRUE(block.ok()) << block.status();
    return block.value_or(Block{});
  }
  // Fills slabs with blocks of `bytes`, and frees them again.
  void FillAndFree(uint64_t slabs, uint64_t bytes) {
    std::vector<Block> blocks;
    for (uint64_t i = 0; i < slabs * (kSlabBytes / bytes); ++i) blocks.push_back(Allocate(bytes));
    for (const Block& block : blocks) pool_.Free(block);
  }

  lane::MemoryDevice device_{/*asynchronous=*/false, uint64_t{1} << 30};
  std::vector<absl::Status> refusals_;
  Pool pool_{device_, 0, {.on_refusal = [this](const absl::Status& why) { refusals_.push_back(why); }}};
  std::atomic<uint64_t> credit_{0}, claim_{0};
  Ledger::Account& account_ = pool_.Open(Tenant{1000, ""}, &credit_, &claim_);
};

TEST_F(PoolTest, UsageSaysWhatEachTenantHas) {
  std::atomic<uint64_t> credit{0}, claim{0};
  const Tenant tenant{1000, ""}, other{1001, ""};
  Ledger::Account& others = pool_.Open(other, &credit, &claim);
  const Block mine = Allocate(3 * kMebibyte), theirs = *pool_.Allocate(40 * kMebibyte, others);
  const DeviceMemory usage = pool_.Usage();
  EXPECT_EQ(usage.device_bytes, uint64_t{1} << 30);
  EXPECT_EQ(usage.on_device, pool_.chunk_bytes());
  ASSERT_EQ(usage.tenants.size(), 2u);
  EXPECT_EQ(usage.tenants.at(tenant).holds, mine.bytes);
  EXPECT_EQ(usage.tenants.at(tenant).on_device, 16 * kMebibyte);
  EXPECT_EQ(usage.tenants.at(tenant).cached, 16 * kMebibyte - mine.bytes);
  EXPECT_EQ(usage.tenants.at(other).holds, theirs.bytes);
  EXPECT_EQ(usage.tenants.at(tenant).on_device + usage.tenants.at(other).on_device, usage.on_device);
  pool_.Free(theirs);
  pool_.Close(others);
  EXPECT_FALSE(pool_.Usage().tenants.contains(other));
  pool_.Free(mine);
}

TEST_F(PoolTest, OperatorsAreToldWhyTheDriverGivesNoMemory) {
  device_.FailAllocations(absl::UnimplementedError("no such memory"));
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(pool_.Allocate(kMebibyte, account_).ok());
  ASSERT_EQ(refusals_.size(), 1u) << "not at each call";
  EXPECT_EQ(refusals_[0].message(), "no such memory");
  device_.FailAllocations(absl::OkStatus());
  pool_.Free(Allocate(kMebibyte));
  refusals_.clear();
  for (const absl::Status& status :
       {absl::UnavailableError("being replaced"), absl::ResourceExhaustedError("full")}) {
    device_.FailAllocations(status);
    EXPECT_FALSE(pool_.Allocate(900 * kMebibyte, account_).ok());
  }
  EXPECT_TRUE(refusals_.empty()) << "these are no faults";
}

// The free ranges of many small blocks are in the way of one large block. Returning their slabs once is
// cheap, compared with the allocations that made them.
TEST_F(PoolTest, MemoryOfManySmallBlocksServesALargeOne) {
  FillAndFree(16, 512);
  EXPECT_EQ(pool_.chunk_bytes(), 64 * kMebibyte);
  pool_.Free(Allocate(50 << 20));
  EXPECT_EQ(pool_.chunk_bytes(), 50 * kMebibyte) << "their chunks went, and one came";
}

// Where a few blocks of two sizes take turns, the pool grows once instead of returning slabs each time.
TEST_F(PoolTest, SizesThatTakeTurnsMakeItGrowOnce) {
  const Block held = Allocate(12 << 20);  // leaves one slab of a chunk of 16 MiB
  FillAndFree(1, 512);                    // 8192 free ranges
  for (int round = 0; round < 100; ++round) {
    pool_.Free(Allocate(3000));
    pool_.Free(Allocate(512));
  }
  EXPECT_EQ(pool_.chunk_bytes(), uint64_t{32} << 20);
  pool_.Free(held);
}

// Without room to grow, slabs are returned whatever it costs.
TEST_F(PoolTest, NearTheDevicesLimitSlabsAreReturned) {
  const Block held = Allocate((uint64_t{1} << 30) - (64 << 20));
  FillAndFree(16, 512);
  for (int round = 0; round < 10; ++round) {
    pool_.Free(Allocate(50 << 20));
    FillAndFree(1, 512);
  }
  pool_.Free(held);
}

// What one tenant is guaranteed is there for it, whatever others ask for.
TEST_F(PoolTest, WhatIsGuaranteedIsThereForTheTenant) {
  std::atomic<uint64_t> credit{0}, claim{0};
  Ledger::Account& other = pool_.Open(Tenant::OfClaim("web"), &credit, &claim);
  pool_.ledger().SetGuarantee(Tenant::OfClaim("web"), 512 * kMebibyte);
  for (Ledger::Account* account : {&account_, &other}) pool_.ledger().SetIdle(*account, false);
  EXPECT_FALSE(pool_.HasSpare(513 * kMebibyte, account_));
  EXPECT_TRUE(absl::IsResourceExhausted(pool_.GiveCredit(account_, 513 * kMebibyte, kMebibyte)));
  EXPECT_TRUE(pool_.GiveCredit(account_, 512 * kMebibyte, kMebibyte).ok());
  EXPECT_TRUE(pool_.GiveCredit(other, 512 * kMebibyte, kMebibyte).ok());
  EXPECT_TRUE(absl::IsResourceExhausted(pool_.GiveCredit(other, kMebibyte, kMebibyte)));
  pool_.Close(other);
}

// Chunks that a tenant has beyond its blocks are not taken from what another one is guaranteed.
TEST_F(PoolTest, ManySmallChunksLeaveRoomForWhatIsGuaranteed) {
  std::atomic<uint64_t> credit{0}, claim{0};
  Ledger::Account& other = pool_.Open(Tenant::OfClaim("web"), &credit, &claim);
  pool_.ledger().SetGuarantee(Tenant::OfClaim("web"), 512 * kMebibyte);
  std::vector<Block> blocks;
  for (;;) {
    const auto block = pool_.Allocate(9 * kMebibyte, account_);  // two of them need a chunk each
    if (!block.ok()) break;
    blocks.push_back(*block);
  }
  EXPECT_GE(blocks.size(), 25u);
  EXPECT_TRUE(pool_.GiveCredit(other, 512 * kMebibyte, 512 * kMebibyte).ok());
  for (const Block& block : blocks) pool_.Free(block);
  pool_.Close(other);
}

TEST_F(PoolTest, EachTenantHasChunksOfItsOwnUntilItGoes) {
  std::atomic<uint64_t> credits[2] = {}, claims[2] = {};
  Ledger::Account& other = pool_.Open(Tenant{1001, ""}, &credits[0], &claims[0]);
  Ledger::Account& second = pool_.Open(Tenant{1001, ""}, &credits[1], &claims[1]);
  const Block own = Allocate(512);
  const uint64_t one = pool_.chunk_bytes();
  EXPECT_LE(one, 16 * kMebibyte);
  const Block block = *pool_.Allocate(512, other), same = *pool_.Allocate(512, second);
  EXPECT_EQ(pool_.chunk_bytes(), 2 * one);
  EXPECT_EQ(other.arena, second.arena);
  EXPECT_NE(other.arena, account_.arena);
  pool_.Free(own);
  const Block next = *pool_.Allocate(512, other);
  EXPECT_NE(next.address, own.address) << "another tenant's memory";
  pool_.Free(next);
  pool_.Free(block);
  pool_.Close(other);
  EXPECT_EQ(pool_.chunk_bytes(), 2 * one) << "its other session is there";
  pool_.Free(same);
  pool_.Close(second);
  EXPECT_EQ(pool_.chunk_bytes(), one);
  EXPECT_EQ(pool_.used_bytes(), 0u);
}

}  // namespace
}  // namespace xpud::memory
