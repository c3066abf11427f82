// The order of compilations. Time is what the tests say.
#include "daemon/compiler/compile_turns.h"

#include <memory>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace xpud::compiler {
namespace {

using kernels::KernelOwner;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr uint64_t kMs = 1'000'000, kPatienceNs = kCompilePatienceNs;

class Turns : public ::testing::Test {
 protected:
  explicit Turns(const CompileTurns::Limits& limits = {}) : turns_(limits) {}

  static std::shared_ptr<KernelOwner> Owner(uint64_t tenant, bool is_ahead = false) {
    return std::make_shared<KernelOwner>(tenant, is_ahead);
  }
  static CompileTurns::Waiter WaiterOf(const std::shared_ptr<KernelOwner>& owner) {
    return {owner, owner->tenant(), owner->is_ahead()};
  }
  uint64_t Add(const std::shared_ptr<KernelOwner>& owner) {
    turns_.Add(++last_, {WaiterOf(owner)});
    return last_;
  }
  // Runs the next job, and returns it.
  uint64_t Run(uint64_t ns) {
    const uint64_t job = turns_.Start(now_).value_or(0);
    now_ += ns;
    if (job != 0) turns_.End(job, now_);
    return job;
  }

  CompileTurns turns_;
  uint64_t now_ = 1000, last_ = 0;
  const std::shared_ptr<KernelOwner> a_ = Owner(1), b_ = Owner(2), c_ = Owner(3);
};

TEST_F(Turns, OfOneTenantComeInTheOrderOfArrival) {
  const auto other_session = Owner(a_->tenant());
  const uint64_t first = Add(a_), second = Add(other_session), third = Add(a_);
  EXPECT_EQ(Run(kMs), first);
  EXPECT_EQ(Run(kMs), second);
  EXPECT_EQ(Run(kMs), third);
  EXPECT_EQ(Run(kMs), 0u);
  EXPECT_EQ(a_->compile_ns(), 2 * kMs);
  EXPECT_EQ(other_session->compile_ns(), kMs);
}

TEST_F(Turns, OfOneTenantWhatCallsWaitForComesBeforeWhatIsCompiledAhead) {
  const auto ahead = Owner(a_->tenant(), true), ahead_of_b = Owner(b_->tenant(), true);
  const uint64_t first = Add(ahead), second = Add(ahead), called = Add(a_), third = Add(ahead);
  EXPECT_EQ(Run(10 * kMs), called);
  turns_.Join(third, WaiterOf(a_));
  EXPECT_EQ(Run(10 * kMs), third) << "a call waits for it, too";
  const uint64_t of_b = Add(ahead_of_b), called_later = Add(a_);
  EXPECT_EQ(Run(100 * kMs), of_b) << "tenants share the time, whatever it is for";
  EXPECT_EQ(Run(kMs), called_later);
  EXPECT_EQ(Run(kMs), first);
  EXPECT_EQ(Run(kMs), second);
  EXPECT_EQ(ahead->compile_ns(), 2 * kMs);
}

TEST_F(Turns, AFloodDelaysAnotherTenantByOneCompilation) {
  for (int i = 0; i < 100; ++i) Add(a_);
  for (int i = 0; i < 10; ++i) Run(50 * kMs);
  ASSERT_TRUE(turns_.Start(now_));
  const uint64_t job = Add(b_);
  EXPECT_FALSE(turns_.Start(now_)) << "one at a time";
  turns_.End(11, now_ += 50 * kMs);
  EXPECT_EQ(Run(kMs), job);
}

TEST_F(Turns, TenantsGetEqualTimeNotEqualNumbers) {
  for (int i = 0; i < 100; ++i) {
    Add(a_);
    Add(b_);
  }
  uint64_t ns[2] = {};
  for (int i = 0; i < 60; ++i) {
    const uint64_t job = turns_.Start(now_).value();
    const bool is_a = job % 2 == 1;
    const uint64_t took = is_a ? 100 * kMs : 20 * kMs;
    turns_.End(job, now_ += took);
    ns[is_a ? 0 : 1] += took;
  }
  EXPECT_NEAR(static_cast<double>(ns[0]), static_cast<double>(ns[1]), 100.0 * kMs);
}

TEST_F(Turns, ATenantThatWasIdleHasSavedNothingUp) {
  for (int i = 0; i < 20; ++i) Add(a_);
  for (int i = 0; i < 10; ++i) Run(100 * kMs);
  for (int i = 0; i < 20; ++i) Add(b_);
  int of_a = 0;
  for (int i = 0; i < 10; ++i) of_a += Run(100 * kMs) <= 20 ? 1 : 0;
  EXPECT_GE(of_a, 4) << "they alternate at once";
  EXPECT_LE(of_a, 6);
}

TEST_F(Turns, AHangDelaysOthersByThePatienceAndItsOwnSessionUntilItsEnd) {
  const uint64_t hang = Add(a_);
  EXPECT_EQ(turns_.Start(now_), hang);
  Add(a_);
  const uint64_t other = Add(b_);
  EXPECT_FALSE(turns_.Start(now_ + kPatienceNs - 1));
  EXPECT_EQ(turns_.DueNs(now_), now_ + kPatienceNs);
  now_ += kPatienceNs;
  EXPECT_EQ(turns_.Overdue(now_), 1u);
  EXPECT_EQ(turns_.DueNs(now_), UINT64_MAX);
  EXPECT_EQ(Run(kMs), other);
  EXPECT_EQ(Run(10'000 * kMs), 0u) << "that of its session waits";
  EXPECT_EQ(turns_.End(hang, now_), kPatienceNs + 10'001 * kMs);
  EXPECT_EQ(a_->compile_ns(), kPatienceNs + 10'001 * kMs);
  EXPECT_EQ(Run(kMs), 2u);
}

TEST_F(Turns, OtherSessionsOfATenantGoOnUntilSeveralHang) {
  const CompileTurns::Limits limits;
  std::vector<std::shared_ptr<KernelOwner>> sessions;
  for (size_t i = 0; i < 10; ++i) Add(sessions.emplace_back(Owner(a_->tenant())));
  size_t started = 0;
  for (size_t i = 0; i < 10; ++i) {
    started += turns_.Start(now_) ? 1 : 0;
    now_ += kPatienceNs;
  }
  EXPECT_EQ(started, limits.overdue_of_tenant);
  const uint64_t other = Add(b_);
  EXPECT_EQ(Run(kMs), other);
}

TEST_F(Turns, ForksAreBounded) {
  const CompileTurns::Limits limits;
  std::vector<std::shared_ptr<KernelOwner>> tenants;
  size_t started = 0;
  for (uint64_t t = 1; t <= 50; ++t) {
    tenants.push_back(Owner(t));
    Add(tenants.back());
    started += turns_.Start(now_) ? 1 : 0;
    now_ += kPatienceNs;
  }
  EXPECT_EQ(started, limits.overdue);
  EXPECT_EQ(turns_.running(), limits.overdue);
  turns_.End(1, now_);
  EXPECT_TRUE(turns_.Start(now_));
}

TEST_F(Turns, AFewTenantsWhoseKernelsHangLeavePlacesForOthers) {
  const CompileTurns::Limits limits;
  std::vector<std::shared_ptr<KernelOwner>> sessions;
  for (int i = 0; i < 10; ++i)
    for (uint64_t tenant = 10; tenant < 16; ++tenant) Add(sessions.emplace_back(Owner(tenant)));
  for (int i = 0; i < 100; ++i) {
    turns_.Start(now_);
    now_ += kPatienceNs;
  }
  EXPECT_GE(turns_.running(), limits.overdue_many);
  EXPECT_LT(turns_.running(), limits.overdue);
  for (int i = 0; i < 10; ++i) {
    const uint64_t other = Add(b_);
    EXPECT_EQ(Run(kMs), other);
  }
}

TEST_F(Turns, AJobThatAnotherTenantWantsTooComesInItsTurn) {
  for (int i = 0; i < 3; ++i) Add(a_);
  const uint64_t wanted = Add(a_);
  turns_.Join(wanted, WaiterOf(b_));
  Run(100 * kMs);
  EXPECT_EQ(Run(kMs), wanted);
  EXPECT_EQ(b_->compile_ns(), kMs);
  turns_.Join(wanted, WaiterOf(c_));  // it is done: nothing happens
  EXPECT_EQ(Run(kMs), 2u);
}

TEST_F(Turns, WhatNobodyWaitsForAnyMoreIsTakenAway) {
  auto gone = Owner(7);
  const uint64_t alone = Add(gone), joined = Add(gone);
  turns_.Join(joined, WaiterOf(b_));
  turns_.Add(++last_, {});
  EXPECT_THAT(turns_.TakeAbandoned(), IsEmpty());
  gone.reset();
  EXPECT_THAT(turns_.TakeAbandoned(), ElementsAre(alone));
  EXPECT_EQ(turns_.waiting(), 2u);
}

TEST_F(Turns, AnOverdueOneThatNobodyWaitsForAnyMoreIsToBeEnded) {
  auto gone = Owner(7), other = Owner(8);
  const uint64_t job = Add(gone);
  EXPECT_EQ(turns_.Start(now_), job);
  turns_.Join(job, WaiterOf(other));
  now_ += kPatienceNs;
  gone.reset();
  EXPECT_THAT(turns_.AbandonedWhileRunning(now_), IsEmpty());
  other.reset();
  EXPECT_THAT(turns_.AbandonedWhileRunning(now_ - 1), IsEmpty()) << "its code may serve others";
  EXPECT_THAT(turns_.AbandonedWhileRunning(now_), ElementsAre(job));
}

TEST_F(Turns, ManyTenantsAreForgotten) {
  for (uint64_t t = 1; t < 3000; ++t) {
    Add(Owner(t));
    EXPECT_NE(Run(t * 1000), 0u);
  }
  const uint64_t job = Add(Owner(5000));
  EXPECT_EQ(Run(kMs), job);
}

class SeveralTurns : public Turns {
 protected:
  SeveralTurns() : Turns({.at_once = 3}) {}
};

TEST_F(SeveralTurns, RunAtATimeAndOneTenantLeavesRoomForOthers) {
  for (int i = 0; i < 10; ++i) Add(a_);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(turns_.Start(now_));
  EXPECT_FALSE(turns_.Start(now_));
  const uint64_t b = Add(b_), c = Add(c_);
  turns_.End(1, now_ += kMs);
  EXPECT_EQ(turns_.Start(now_), b) << "what runs of a counts";
  turns_.End(2, now_ += kMs);
  EXPECT_EQ(turns_.Start(now_), c);
}

TEST_F(SeveralTurns, ATenantWhoseKernelsHangHasNoMoreThanOneTurnsFull) {
  for (int i = 0; i < 10; ++i) Add(a_);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(turns_.Start(now_));
  now_ += kPatienceNs;
  EXPECT_FALSE(turns_.Start(now_));
  const uint64_t b = Add(b_);
  EXPECT_EQ(turns_.Start(now_), b);
  EXPECT_EQ(turns_.running(), 4u);
}

}  // namespace
}  // namespace xpud::compiler
