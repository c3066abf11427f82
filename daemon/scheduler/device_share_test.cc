#include "daemon/scheduler/device_share.h"

#include "gtest/gtest.h"

namespace xpud::scheduler {
namespace {

constexpr uint64_t kMs = 1'000'000;

// A device that does one session's command after another's, and what sessions send to it.
class DeviceShareTest : public ::testing::Test {
 protected:
  struct Sender {
    DeviceShare::Account* account;
    stream::DeviceWork work;
  };

  Sender Add() { return {&share_.Add(), {}}; }
  // It has had work since the beginning, of which a command ended now.
  void Do(Sender& sender, uint64_t ns) {
    now_ns_ += ns;
    if (sender.work.occupied_since_ns == 0) sender.work.occupied_since_ns = now_ns_ - ns;
    sender.work.used_ns += ns;
    sender.work.ended_ns = now_ns_;
    Look(sender);
  }
  void Look(Sender& sender) {
    share_.Update(*sender.account, sender.work);
    share_.BeginRound(now_ns_);
  }
  bool Held(const Sender& sender) const { return share_.HoldsBack(*sender.account); }

  DeviceShare share_;
  uint64_t now_ns_ = 1000 * kMs;
};

TEST_F(DeviceShareTest, CommandsThatCostTenToOneGetEqualTime) {
  Sender heavy = Add(), light = Add();
  uint64_t had[2] = {};
  for (int round = 0; round < 10'000; ++round) {
    if (!Held(heavy)) Do(heavy, 2 * kMs), had[0] += 2 * kMs;
    if (!Held(light)) Do(light, kMs / 5), had[1] += kMs / 5;
  }
  const double part = static_cast<double>(had[0]) / static_cast<double>(had[0] + had[1]);
  EXPECT_NEAR(part, 0.5, 0.02);
}

TEST_F(DeviceShareTest, NobodyWaitsForOneThatDoesNotKeepTheDeviceBusy) {
  Sender busy = Add(), polite = Add();
  for (int i = 0; i < 100; ++i) {
    Do(busy, 2 * kMs);
    Do(polite, kMs / 5);
    polite.work.occupied_since_ns = 0;  // waits for each answer
    Look(polite);
    EXPECT_FALSE(Held(busy)) << i;
    EXPECT_FALSE(Held(polite)) << i;
  }
}

TEST_F(DeviceShareTest, OneThatDoesWaitForItsAnswersMayStillBeAhead) {
  Sender busy = Add(), sync = Add();
  bool held = false;
  for (int i = 0; i < 20; ++i) {
    Do(busy, kMs / 5);
    sync.work.occupied_since_ns = 0;
    Do(sync, 3 * kMs);
    held |= Held(sync);
  }
  EXPECT_TRUE(held);
}

TEST_F(DeviceShareTest, NobodyWaitsForWorkThatDoesNotEnd) {
  Sender busy = Add(), endless = Add();
  Do(endless, kMs);
  for (int i = 0; i < 100; ++i) Do(busy, 2 * kMs);
  EXPECT_FALSE(Held(busy));
}

TEST_F(DeviceShareTest, IdleTimeSavesNothingUp) {
  Sender old = Add(), other = Add();
  Do(other, kMs);
  other.work.occupied_since_ns = 0;
  for (int i = 0; i < 500; ++i) Do(old, 2 * kMs);
  Do(other, kMs);  // back after a second
  now_ns_ += DeviceShare::kBusyForNs;
  Look(other);
  EXPECT_FALSE(Held(old));
  Sender newcomer = Add();
  for (int i = 0; i < 20; ++i) Do(newcomer, kMs);
  EXPECT_FALSE(Held(old));
}

TEST_F(DeviceShareTest, DebtsAreForgiven) {
  Sender busy = Add(), polite = Add();
  for (int i = 0; i < 500; ++i) {
    Do(busy, 2 * kMs);
    polite.work.occupied_since_ns = 0;
    Do(polite, kMs / 10);
  }
  uint64_t held_ns = 0;  // from now on it keeps the device busy, too
  for (int i = 0; i < 1000; ++i) {
    Do(polite, kMs);
    held_ns += Held(busy) ? kMs : 0;
  }
  EXPECT_LE(held_ns, DeviceShare::kMaxDebtNs);
  EXPECT_GT(held_ns, DeviceShare::kMaxDebtNs / 2);
}

}  // namespace
}  // namespace xpud::scheduler
