#include "daemon/stream/device_time.h"

#include "gtest/gtest.h"

namespace xpud::stream {
namespace {

constexpr uint64_t kUs = 1'000, kMs = 1'000'000;

// Of a lane's thread and a device's sessions.
struct Sender {
  explicit Sender(DeviceTime& time) : account(time, used_ns, counters) {}
  uint64_t used_ns = 0;
  SessionCounters counters;
  DeviceTime::Account account;
};

TEST(DeviceTime, WorkBehindOthersIsSeenFromTheirEnd) {
  DeviceTime time;
  EXPECT_EQ(time.Ended(0, 100), 100u);
  EXPECT_EQ(time.Ended(10, 110), 10u);
  EXPECT_EQ(time.Ended(20, 210), 100u);
  EXPECT_EQ(time.busy_ns(), 210u);
}

TEST(DeviceTime, WhatIsSeenAddsUpToTheTimeThatThereWasWork) {
  DeviceTime time;
  uint64_t seen = 0;
  for (uint64_t at = 10; at < 100; at += 10) seen += time.Ended(at, at + 10);
  seen += time.Ended(0, 105);
  seen += time.Ended(50, 105);
  EXPECT_EQ(seen, 95u);
  EXPECT_EQ(time.busy_ns(), seen);
}

TEST(DeviceTime, IdleTimeIsNobodys) {
  DeviceTime time;
  EXPECT_EQ(time.Ended(0, 10), 10u);
  EXPECT_EQ(time.Ended(1000, 1010), 10u);
  EXPECT_EQ(time.busy_ns(), 20u);
}

TEST(DeviceTime, AloneItIsChargedAtOnceWhateverWasPredicted) {
  DeviceTime time;
  Sender one(time);
  time.Ended(one.account, {0, 70 * kUs, 2, 10 * kUs}, 0, /*alone=*/true);
  EXPECT_EQ(one.used_ns, 70 * kUs);
  time.Ended(one.account, {0, 80 * kUs, 1, 900 * kUs}, 3 * kMs, /*alone=*/true);
  EXPECT_EQ(one.used_ns, 80 * kUs);
  EXPECT_EQ(one.counters.busy_ns, 80 * kUs);
  EXPECT_EQ(one.counters.duration.sum_ns(), 80 * kUs);
}

// One sends small kernels and fences each, the other many between two fences. The device runs twice as fast
// as each was predicted alone, since they overlap.
TEST(DeviceTime, WorkThatOverlapsIsChargedByItsSize) {
  DeviceTime time;
  Sender few(time), many(time);
  for (uint64_t now = 0; now < 1000 * kMs; now += 100 * kUs) {
    for (uint64_t at = 10; at <= 50; at += 10)
      time.Ended(few.account, {now, now + at * kUs, 1, 10 * kUs}, kMs, false);
    time.Ended(many.account, {now, now + 100 * kUs, 15, 150 * kUs}, kMs, false);
  }
  time.Settle(0);
  EXPECT_EQ(few.used_ns + many.used_ns, time.busy_ns());
  EXPECT_NEAR(static_cast<double>(few.used_ns) / static_cast<double>(time.busy_ns()), 0.25, 0.001);
}

TEST(DeviceTime, WorkThatIsSlowerThanPredictedIsChargedWhatItTook) {
  DeviceTime time;
  Sender slow(time), right(time);
  for (uint64_t now = 0; now < 1000 * kMs; now += 200 * kUs) {
    time.Ended(slow.account, {now, now + 100 * kUs, 1, 10 * kUs}, kMs, false);
    time.Ended(right.account, {now, now + 200 * kUs, 1, 100 * kUs}, kMs, false);
  }
  EXPECT_GE(slow.used_ns + right.used_ns + kMs, time.busy_ns());
  EXPECT_NEAR(static_cast<double>(right.used_ns) / static_cast<double>(time.busy_ns()), 0.5, 0.002);
}

// Kernels of 10 ms take twice as long beside small ones, whose ends are seen all the time.
TEST(DeviceTime, ALongKernelBesideShortOnesIsChargedWhenItEnds) {
  DeviceTime time;
  Sender lengthy(time), brief(time);
  for (uint64_t now = 0; now < 1000 * kMs; now += 20 * kMs) {
    for (uint64_t at = 200 * kUs; at < 20 * kMs; at += 200 * kUs)
      time.Ended(brief.account, {now, now + at, 1, 100 * kUs}, 10 * kMs, false);
    time.Ended(lengthy.account, {now, now + 20 * kMs, 1, 10 * kMs}, 0, false);
  }
  time.Settle(0);
  EXPECT_EQ(lengthy.used_ns + brief.used_ns, time.busy_ns());
  EXPECT_NEAR(static_cast<double>(lengthy.used_ns) / static_cast<double>(time.busy_ns()), 0.5, 0.01);
}

// What a kernel in flight might use is kept for it, but not without limit: it may never end.
TEST(DeviceTime, TimeIsLeftForWorkInFlightWithinALimit) {
  DeviceTime time;
  Sender one(time);
  for (uint64_t now = 0; now < 1000 * kMs; now += kMs)
    time.Ended(one.account, {now, now + kMs, 1, 100 * kUs}, 10'000 * kMs, false);
  EXPECT_GE(one.used_ns + DeviceTime::kMaxLeftNs + DeviceTime::kWindowNs, time.busy_ns());
  time.Ended(one.account, {1000 * kMs, 1001 * kMs, 1, 100 * kUs}, 0, /*alone=*/true);
  EXPECT_EQ(one.used_ns, time.busy_ns());
}

TEST(DeviceTime, ASessionThatGoesIsChargedFirst) {
  DeviceTime time;
  Sender stays(time);
  {
    Sender goes(time);
    time.Ended(goes.account, {0, 100 * kUs, 1, 100 * kUs}, kMs, false);
    time.Ended(stays.account, {0, 200 * kUs, 1, 100 * kUs}, kMs, false);
  }
  EXPECT_EQ(stays.used_ns, 100 * kUs);
  time.Ended(stays.account, {0, 300 * kUs, 1, 100 * kUs}, 0, /*alone=*/true);
  EXPECT_EQ(stays.used_ns, 200 * kUs);
}

}  // namespace
}  // namespace xpud::stream
