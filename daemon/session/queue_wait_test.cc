#include "daemon/session/queue_wait.h"

#include <gtest/gtest.h>

#include <random>

namespace xpud::session {
namespace {

TEST(QueueWait, CommandsThatWereSeenWaitUntilTheyAreRun) {
  QueueWait wait;
  wait.SawNone(1000);
  wait.Ended(2000, QueueWait::Rest::kWaiting);
  EXPECT_EQ(wait.Begins(2700), 700u);
  wait.Ended(3000, QueueWait::Rest::kNone);
  wait.SawNone(5000);
  EXPECT_EQ(wait.Begins(5000), 0u) << "time without commands is no wait";
}

TEST(QueueWait, BehindOnesOwnWorkNobodyWaitsButForOthers) {
  QueueWait wait;
  wait.Ended(2000, QueueWait::Rest::kBehindOwn);
  EXPECT_EQ(wait.Begins(9000), 0u);
  wait.Ended(10'000, QueueWait::Rest::kBehindOwn);
  wait.HeldBack();
  EXPECT_EQ(wait.Begins(10'500), 500u);
}

TEST(QueueWait, BeforeTheFirstLookNobodyWaits) { EXPECT_EQ(QueueWait().Begins(123'456'789), 0u); }

// Another session runs for 100 us at a time, a command comes at some moment, and is run at once after that.
TEST(QueueWait, WhatCameUnseenIsRightInTheMean) {
  constexpr uint64_t kSlice = 100'000;
  std::mt19937_64 random(7);
  uint64_t counted = 0, waited = 0;
  QueueWait wait;
  for (uint64_t now = 0, i = 0; i < 100'000; ++i) {
    wait.SawNone(now);
    const uint64_t arrived = now + random() % kSlice;
    now += kSlice;
    counted += wait.Begins(now);
    waited += now - arrived;
    wait.Ended(now, QueueWait::Rest::kNone);
  }
  EXPECT_NEAR(static_cast<double>(counted) / static_cast<double>(waited), 1, 0.02);
}

}  // namespace
}  // namespace xpud::session
