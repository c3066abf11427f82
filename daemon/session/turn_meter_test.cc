#include "daemon/session/turn_meter.h"

#include <gtest/gtest.h>

#include <numeric>

namespace xpud::session {
namespace {

uint64_t CountOf(const Histogram& histogram) {
  return std::accumulate(histogram.counts().begin(), histogram.counts().end(), uint64_t{0});
}

TEST(TurnMeter, CommandsBetweenTwoReadingsShareTheTime) {
  SessionCounters counters;
  TurnMeter meter(/*executes=*/true, counters);
  meter.Begin(1'000'000);
  meter.Ran(1'000'000);  // the clock was not read again
  meter.Ran(1'000'000);
  meter.Ran(1'006'000);
  EXPECT_EQ(counters.duration.counts()[1], 3u) << "2 us each";
  meter.Ran(1'006'000);
  meter.End(1'106'000, QueueWait::Rest::kNone);
  EXPECT_EQ(counters.duration.counts()[4], 1u) << "100 us";
  EXPECT_EQ(counters.duration.sum_ns(), 106'000u);
  EXPECT_EQ(counters.latency.sum_ns(), 4 * 106'000u);
  EXPECT_EQ(meter.ran(), 4u);
  EXPECT_EQ(meter.began_ns(), 1'000'000u);
  EXPECT_EQ(meter.ended_ns(), 1'106'000u);
}

TEST(TurnMeter, OnlyItsQueueTellsHowLongAnAsynchronousDeviceTook) {
  SessionCounters counters;
  TurnMeter meter(/*executes=*/false, counters);
  meter.Begin(1000);
  meter.Ran(2000);
  meter.End(3000, QueueWait::Rest::kNone);
  EXPECT_EQ(CountOf(counters.duration), 0u);
  EXPECT_EQ(CountOf(counters.latency), 0u);
  EXPECT_EQ(CountOf(counters.queue_wait), 1u);
}

TEST(TurnMeter, WhatRemainsOfATurnWaitsForTheNext) {
  SessionCounters counters;
  TurnMeter meter(/*executes=*/true, counters);
  EXPECT_EQ(meter.Begin(1000), 0u);
  meter.Ran(2000);
  meter.End(2000, QueueWait::Rest::kWaiting);
  EXPECT_EQ(meter.Begin(5000), 3000u);
  meter.Ran(6000);
  meter.Ran(7000);
  meter.End(7000, QueueWait::Rest::kBehindOwn);
  EXPECT_EQ(counters.queue_wait_ns, 3000u);
  EXPECT_EQ(counters.queue_wait.sum_ns(), 2 * 3000u) << "each of the two commands waited";
  EXPECT_EQ(meter.Begin(9000), 0u) << "it waited for its own work";
}

TEST(TurnMeter, ATurnInWhichNothingRanHasWaitedOnly) {
  SessionCounters counters;
  TurnMeter meter(/*executes=*/true, counters);
  meter.SawNone(1000);
  meter.End(2000, QueueWait::Rest::kWaiting);
  meter.Begin(3000);
  meter.End(4000, QueueWait::Rest::kBehindOwn);
  EXPECT_EQ(counters.queue_wait_ns, 1000u);
  EXPECT_EQ(CountOf(counters.queue_wait), 0u);
  EXPECT_EQ(CountOf(counters.latency), 0u);
}

}  // namespace
}  // namespace xpud::session
