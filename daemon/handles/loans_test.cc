#include "daemon/handles/loans.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "proto/base/start_thread.h"

namespace xpud::handles {
namespace {

using State = Loan::State;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

class LoansTest : public ::testing::Test {
 protected:
  std::shared_ptr<Loan> Add(uint32_t source, uint64_t id) {
    EXPECT_TRUE(loans_.IsNext(source, id));
    auto loan = std::make_shared<Loan>(source, id, 64, nullptr, 0);
    EXPECT_TRUE(loans_.Add(loan));
    return loan;
  }
  std::vector<uint32_t> TakeRung() { return std::exchange(rung_, {}); }

  std::vector<uint32_t> rung_;
  Loans loans_{[this](uint32_t lane) { rung_.push_back(lane); }};
};

TEST_F(LoansTest, GoFromLentToReturned) {
  const auto loan = Add(3, 1);
  EXPECT_EQ(loan->state(), State::kLent);
  EXPECT_FALSE(loans_.Borrow(*loan)) << "it is not ready";
  loans_.SetReady(*loan, absl::InternalError("why"));
  EXPECT_EQ(loan->error(), absl::InternalError("why"));
  ASSERT_TRUE(loans_.Borrow(*loan));
  EXPECT_FALSE(loans_.Borrow(*loan)) << "it has one copy";
  EXPECT_FALSE(loans_.TakeBack(*loan)) << "it is being copied";
  EXPECT_EQ(*loans_.Find(3, 1), loan);
  EXPECT_THAT(TakeRung(), IsEmpty());
  loans_.Return(*loan);
  EXPECT_EQ(loan->state(), State::kReturned);
  EXPECT_THAT(TakeRung(), ElementsAre(3)) << "the source may go on";
  EXPECT_TRUE(loans_.TakeBack(*loan));
  EXPECT_EQ(loans_.open(), 0u);
}

TEST_F(LoansTest, AreTakenBackUnlessTheyAreCopied) {
  const auto lent = Add(0, 1), ready = Add(0, 2);
  loans_.SetReady(*ready, absl::OkStatus());
  EXPECT_TRUE(loans_.TakeBack(*lent) && loans_.TakeBack(*ready));
  EXPECT_FALSE(loans_.Borrow(*lent) || loans_.Borrow(*ready));
  EXPECT_EQ(loans_.open(), 0u);
}

// A copy may come before its loan, whose lane is another thread; but not after its end.
TEST_F(LoansTest, AreToComeOrHaveEnded) {
  EXPECT_EQ(*loans_.Find(0, 1), nullptr);
  const auto loan = Add(0, 1);
  EXPECT_EQ(*loans_.Find(1, 1), nullptr) << "each source counts its own";
  EXPECT_EQ(*loans_.Find(0, 2), nullptr);
  EXPECT_TRUE(loans_.TakeBack(*loan));
  EXPECT_TRUE(absl::IsInvalidArgument(loans_.Find(0, 1).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(loans_.Find(0, 0).status()));
  for (const uint64_t id : {uint64_t{0}, uint64_t{1}, uint64_t{3}, ~uint64_t{0}})
    EXPECT_FALSE(loans_.IsNext(0, id));
  EXPECT_TRUE(loans_.IsNext(0, 2));
}

TEST_F(LoansTest, WakeTheLanesThatWaitForThem) {
  const auto loan = Add(0, 1);
  loans_.Await(5);
  loans_.Await(2);
  loans_.SetReady(*loan, absl::OkStatus());
  EXPECT_THAT(TakeRung(), ElementsAre(2, 5));
  loans_.SetReady(*Add(0, 2), absl::OkStatus());
  EXPECT_THAT(TakeRung(), IsEmpty());
}

TEST_F(LoansTest, HaveALimitAndSayWhenThereIsRoom) {
  std::vector<std::shared_ptr<Loan>> open;
  for (uint64_t id = 1; id <= wire::kMaxLoans; ++id) open.push_back(Add(0, id));
  EXPECT_FALSE(loans_.Add(std::make_shared<Loan>(4, 1, 64, nullptr, 0)));
  EXPECT_TRUE(loans_.IsNext(4, 1)) << "it is not there";
  EXPECT_EQ(*loans_.Find(4, 1), nullptr);
  EXPECT_TRUE(loans_.TakeBack(*open[7]));
  EXPECT_THAT(TakeRung(), ElementsAre(4));
  Add(4, 1);
}

// The end of the source's session, and the copy, at once: one of them gets it.
TEST(Loans, GoToOneOfTwoThreads) {
  Loans loans([](uint32_t) {});
  for (uint64_t id = 1; id <= 2000; ++id) {
    const auto loan = std::make_shared<Loan>(0, id, 64, nullptr, 0);
    ASSERT_TRUE(loans.Add(loan));
    loans.SetReady(*loan, absl::OkStatus());
    std::atomic<bool> borrowed{false};
    std::thread target = *StartThread("target", [&] { borrowed = loans.Borrow(*loan); });
    const bool back = loans.TakeBack(*loan);
    target.join();
    ASSERT_NE(back, borrowed.load());
    if (borrowed) loans.Return(*loan);
  }
  EXPECT_EQ(loans.open(), 0u);
}

}  // namespace
}  // namespace xpud::handles
