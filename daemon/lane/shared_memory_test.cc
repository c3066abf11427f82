// Shared memory and its tickets, over a device that has only memory.
#include "daemon/memory/shared_memory.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <optional>
#include <vector>

#include "daemon/handles/buffer_table.h"
#include "daemon/lane/testing/memory_device.h"

namespace xpud::memory {
namespace {

using handles::Buffer;
using handles::BufferTable;

constexpr uint64_t kMiB = 1 << 20;
constexpr uint64_t kSecond = 1'000'000'000;
const Tenant kTenant = {1000}, kOther = {1001};

struct NeverDone final : SharedMemory::Sender {
  bool HasCompleted(const SharedMemory::Mark& mark) const override { return mark.sequence <= completed; }
  uint64_t completed = 0;
};

// A session, as far as it has memory.
struct Owner {
  Owner(Pool& pool, const Tenant& tenant, uint64_t session)
      : account(pool.Open(tenant, &credit, &claim)), table(space, tenant, session) {
    table.ExplainCauses([session](uint32_t cause) {
      return absl::InternalError("cause " + std::to_string(cause) + " of " + std::to_string(session));
    });
  }

  std::atomic<uint64_t> credit{0}, claim{0};
  Ledger::Account& account;
  handles::TableSpace space;
  BufferTable table;
  uint32_t ids = 0;
};

class SharedMemoryTest : public testing::Test {
 protected:
  ~SharedMemoryTest() override {
    EXPECT_TRUE(shared_ == std::nullopt || shared_->tenants().empty());
    EXPECT_EQ(pool_.used_bytes(), 0u);
  }

  Buffer& Insert(Owner& owner) {
    const wire::Handle handle = {++owner.ids, 1};
    EXPECT_TRUE(owner.table.Admit(handle).ok());
    return *owner.table.Insert(handle);
  }
  Buffer& Allocate(Owner& owner, uint64_t bytes) {
    Buffer& buffer = Insert(owner);
    buffer.bytes = bytes;
    EXPECT_TRUE(pool_.GiveCredit(owner.account, RoundSize(bytes), bytes).ok());
    buffer.own.block = *pool_.Allocate(bytes, owner.account);
    return buffer;
  }
  SharedAllocation& Share(Owner& owner, Buffer& buffer) {
    owner.table.Share(buffer, shared_->Share(kTenant, buffer.own, buffer.bytes));
    return *buffer.own.block.shared;
  }
  SharedMemory::Ticket Issue(SharedAllocation& allocation, uint64_t session = 1, uint64_t mark = 0) {
    return shared_->Issue(allocation, session, sender_, {{0, mark}});
  }
  // The invariant of the pool: there are chunks for all credit.
  void ExpectCovered() { EXPECT_LE(pool_.used_bytes() + pool_.ledger().unused(), pool_.chunk_bytes()); }

  lane::MemoryDevice device_{/*asynchronous=*/false, uint64_t{1} << 30};
  Pool pool_{device_, 0};
  std::optional<SharedMemory> shared_{pool_};
  NeverDone sender_;
  Owner a_{pool_, kTenant, 1}, b_{pool_, kTenant, 2};
};

TEST_F(SharedMemoryTest, TheChargeGoesFromTheSessionToTheTenant) {
  Buffer& buffer = Allocate(a_, kMiB);
  const auto& share = pool_.ledger().tenants().at(kTenant);
  const uint64_t of_tenant = share.credit, unused = pool_.ledger().unused();
  SharedAllocation& allocation = Share(a_, buffer);
  EXPECT_EQ(a_.account.held(), 0u);
  EXPECT_EQ(a_.account.credit(), 0u);
  EXPECT_EQ(a_.credit, 0u) << "its client sees it";
  EXPECT_EQ(share.credit, of_tenant);
  EXPECT_EQ(pool_.ledger().unused(), unused);
  EXPECT_EQ(shared_->tenants().at(kTenant).bytes, kMiB);
  ExpectCovered();
  shared_->Drop(allocation);
  EXPECT_EQ(share.credit, 0u);
  ExpectCovered();
}

TEST_F(SharedMemoryTest, MemoryEndsWithItsLastReference) {
  Buffer& buffer = Allocate(a_, kMiB);
  SharedAllocation& allocation = Share(a_, buffer);
  const SharedMemory::Ticket ticket = Issue(allocation);
  shared_->Drop(allocation);  // the sender's buffer
  EXPECT_EQ(pool_.used_bytes(), kMiB);
  ASSERT_NE(shared_->Find(ticket, kTenant), nullptr);
  EXPECT_EQ(&shared_->Take(ticket), &allocation);
  EXPECT_EQ(shared_->Find(ticket, kTenant), nullptr);
  EXPECT_EQ(pool_.used_bytes(), kMiB);
  shared_->Drop(allocation);
  EXPECT_EQ(pool_.used_bytes(), 0u);
  EXPECT_TRUE(shared_->tenants().empty());
}

TEST_F(SharedMemoryTest, UsageNamesTheMostUsersOfOneMemory) {
  SharedAllocation &one = Share(a_, Allocate(a_, kMiB)), &other = Share(a_, Allocate(a_, kMiB));
  const auto usage = [&] {
    DeviceMemory all = pool_.Usage();
    shared_->AddTo(all);
    return all.tenants.at(kTenant);
  };
  EXPECT_EQ(usage().shared, 2 * kMiB);
  EXPECT_EQ(usage().holds, 2 * kMiB);
  EXPECT_EQ(usage().sharers, 1u);
  const SharedMemory::Ticket first = Issue(one), second = Issue(one), third = Issue(other);
  EXPECT_EQ(usage().sharers, 1u) << "nobody has taken the tickets";
  shared_->Take(first);
  shared_->Take(third);
  EXPECT_EQ(usage().sharers, 2u);
  shared_->Take(second);
  EXPECT_EQ(usage().sharers, 3u);
  for (int i = 0; i < 2; ++i) shared_->Drop(one);
  EXPECT_EQ(usage().sharers, 2u) << "of the other one";
  for (int i = 0; i < 2; ++i) shared_->Drop(other);
  EXPECT_EQ(usage().sharers, 1u);
  EXPECT_EQ(usage().shared, kMiB);
  shared_->Drop(one);
  EXPECT_EQ(usage().sharers, 0u);
}

TEST_F(SharedMemoryTest, MemoryThatOnlyATicketKeepsHasNoUser) {
  SharedAllocation &one = Share(a_, Allocate(a_, kMiB)), &other = Share(a_, Allocate(a_, kMiB));
  const SharedMemory::Ticket ticket = Issue(one);
  shared_->Drop(one);
  SharedAllocation& third = Share(a_, Allocate(a_, kMiB));
  DeviceMemory usage = pool_.Usage();
  shared_->AddTo(usage);
  EXPECT_EQ(usage.tenants.at(kTenant).sharers, 1u);
  shared_->Drop(shared_->Take(ticket));
  shared_->Drop(other);
  shared_->Drop(third);
}

TEST_F(SharedMemoryTest, TicketsAreOfOneTenant) {
  Buffer& buffer = Allocate(a_, kMiB);
  SharedAllocation& allocation = Share(a_, buffer);
  const SharedMemory::Ticket ticket = Issue(allocation);
  EXPECT_EQ(shared_->Find(ticket, kOther), nullptr);
  EXPECT_EQ(shared_->Find({ticket[0], ticket[1] + 1}, kTenant), nullptr);
  EXPECT_NE(shared_->Find(ticket, kTenant), nullptr);
  shared_->Drop(allocation);
  shared_->Revoke(kOther);
  EXPECT_EQ(shared_->tenants().size(), 1u);
  shared_->Revoke(kTenant);
}

TEST_F(SharedMemoryTest, TicketsEndAMinuteAfterTheirSender) {
  Buffer& buffer = Allocate(a_, kMiB);
  SharedAllocation& allocation = Share(a_, buffer);
  const SharedMemory::Ticket first = Issue(allocation), taken = Issue(allocation),
                             of_another = Issue(allocation, 2);
  shared_->Expire(1000 * kSecond);
  EXPECT_EQ(shared_->due_ns(), UINT64_MAX);
  shared_->SenderEnded(1, 1000 * kSecond);
  shared_->Drop(allocation);
  EXPECT_EQ(shared_->due_ns(), 1060 * kSecond);
  shared_->Drop(shared_->Take(taken));
  shared_->Expire(1060 * kSecond - 1);
  EXPECT_NE(shared_->Find(first, kTenant), nullptr);
  shared_->Expire(1060 * kSecond);
  EXPECT_EQ(shared_->Find(first, kTenant), nullptr);
  EXPECT_NE(shared_->Find(of_another, kTenant), nullptr) << "its sender lives";
  EXPECT_EQ(shared_->due_ns(), UINT64_MAX);
  shared_->SenderEnded(2, 1070 * kSecond);
  shared_->SenderEnded(3, 1070 * kSecond);  // it has none
  shared_->Expire(1130 * kSecond);
}

TEST_F(SharedMemoryTest, ATicketIsReadyOnceItsSendersCommandsAre) {
  Buffer& buffer = Allocate(a_, kMiB);
  SharedAllocation& allocation = Share(a_, buffer);
  const SharedMemory::Ticket ticket = Issue(allocation, 1, 5);
  sender_.completed = 4;
  EXPECT_FALSE(shared_->IsReady(*shared_->Find(ticket, kTenant)));
  sender_.completed = 5;
  EXPECT_TRUE(shared_->IsReady(*shared_->Find(ticket, kTenant)));
  sender_.completed = 4;
  shared_->SenderEnded(1, 0);
  EXPECT_TRUE(shared_->IsReady(*shared_->Find(ticket, kTenant))) << "what has ended has nothing in flight";
  shared_->Drop(allocation);
  shared_->Expire(UINT64_MAX);
}

TEST_F(SharedMemoryTest, ATenantHasSoManyTickets) {
  Buffer& buffer = Allocate(a_, kMiB);
  SharedAllocation& allocation = Share(a_, buffer);
  EXPECT_TRUE(shared_->MayIssue(kTenant));
  SharedMemory::Ticket last;
  for (uint64_t i = 0; i < SharedMemory::kMaxTickets; ++i) last = Issue(allocation);
  EXPECT_FALSE(shared_->MayIssue(kTenant));
  EXPECT_TRUE(shared_->MayIssue(kOther));
  shared_->Drop(shared_->Take(last));
  EXPECT_TRUE(shared_->MayIssue(kTenant));
  shared_->Drop(allocation);
  shared_->Revoke(kTenant);
}

TEST_F(SharedMemoryTest, WhatIsLeftAtTheEndIsFreed) {
  Buffer& buffer = Allocate(a_, kMiB);
  SharedAllocation& allocation = Share(a_, buffer);
  Issue(allocation);
  Issue(allocation);
  shared_->Drop(allocation);
  shared_.reset();
}

// ---- poison

class SharedPoisonTest : public SharedMemoryTest {
 protected:
  SharedPoisonTest() {
    SharedAllocation& allocation = Share(a_, ours_);
    SharedMemory::Refer(allocation);
    theirs_.bytes = ours_.bytes;
    theirs_.Name(allocation);
  }
  void DropBoth() {
    SharedAllocation& allocation = *ours_.own.block.shared;
    shared_->Drop(allocation);
    shared_->Drop(allocation);
  }

  Buffer &ours_ = Allocate(a_, kMiB), &theirs_ = Insert(b_);
};

TEST_F(SharedPoisonTest, AReaderLearnsTheErrorOfTheOther) {
  a_.table.PoisonSkipped(ours_.allocation(), {7, 3});
  EXPECT_EQ(a_.table.PoisonedByAnother(ours_.allocation()), nullptr);
  const SharedAllocation* const poisoned = b_.table.PoisonedByAnother(theirs_.allocation());
  ASSERT_NE(poisoned, nullptr);
  EXPECT_EQ(poisoned->error.message(), "cause 7 of 1");
  EXPECT_EQ(theirs_.allocation().poison, Poison::kFresh);
  theirs_.MarkWritten(1, 9);
  EXPECT_TRUE(ours_.allocation().written);
  EXPECT_EQ(ours_.allocation().content, 9u);
  EXPECT_EQ(ours_.last_write, 0u) << "sequences are a session's own";
  DropBoth();
}

TEST_F(SharedPoisonTest, InPlacePoisonEndsWithTheReportInItsSession) {
  ours_.MarkWritten(1, 1);
  a_.table.PoisonSkipped(ours_.allocation(), {7, 3});
  b_.table.ForgiveInPlace({7, 3});
  EXPECT_EQ(theirs_.allocation().poison, Poison::kInPlace);
  a_.table.ForgiveInPlace({7, 3});
  EXPECT_EQ(theirs_.allocation().poison, Poison::kNone);
  DropBoth();
}

TEST_F(SharedPoisonTest, InPlacePoisonEndsWithItsSession) {
  ours_.MarkWritten(1, 1);
  Owner gone(pool_, kTenant, 3);
  {
    BufferTable table(gone.space, kTenant, 3);
    table.PoisonSkipped(ours_.allocation(), {7, 3});
    EXPECT_EQ(theirs_.allocation().poison, Poison::kInPlace);
  }
  EXPECT_EQ(theirs_.allocation().poison, Poison::kNone);
  DropBoth();
}

// It is overwritten, and poisoned by another session, whose report counts then.
TEST_F(SharedPoisonTest, TheLastOneToPoisonIsTheOneToReport) {
  ours_.MarkWritten(1, 1);
  a_.table.PoisonSkipped(ours_.allocation(), {7, 3});
  ours_.allocation().poison = Poison::kNone;
  b_.table.PoisonSkipped(theirs_.allocation(), {8, 3});
  a_.table.ForgiveInPlace({7, 3});
  EXPECT_EQ(theirs_.allocation().poison, Poison::kInPlace);
  b_.table.ForgiveInPlace({8, 3});
  EXPECT_EQ(theirs_.allocation().poison, Poison::kNone);
  DropBoth();
}

// The list must not name memory that is gone.
TEST_F(SharedPoisonTest, PoisonedMemoryMayEndBeforeTheReport) {
  ours_.MarkWritten(1, 1);
  a_.table.PoisonSkipped(ours_.allocation(), {7, 3});
  DropBoth();
  a_.table.ForgiveInPlace({7, 3});
}

TEST_F(SharedMemoryTest, PoisonFromBeforeIsShared) {
  Buffer& buffer = Allocate(a_, kMiB);
  buffer.MarkWritten(1, 1);
  a_.table.PoisonSkipped(buffer.allocation(), {7, 3});
  SharedAllocation& allocation = Share(a_, buffer);
  ASSERT_NE(b_.table.PoisonedByAnother(allocation), nullptr);
  EXPECT_EQ(allocation.error.message(), "cause 7 of 1");
  a_.table.ForgiveInPlace({7, 3});
  EXPECT_EQ(allocation.poison, Poison::kNone);
  shared_->Drop(allocation);
}

}  // namespace
}  // namespace xpud::memory
