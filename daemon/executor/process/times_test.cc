#include <gtest/gtest.h>

#include <memory>
#include <thread>

#include "daemon/executor/process/replay_times.h"
#include "daemon/executor/process/times_exchange.h"

namespace xpud::executor::process {
namespace {

TimesExchange::Entry Entry(uint64_t number) { return {7, 0, {number, number + 1, number + 2}}; }

TEST(TimesExchangeTest, ATicketIsReachedWhenTheExecutorSaysSo) {
  const auto exchange = std::make_unique<TimesExchange>();
  const uint32_t on = exchange->Want(true), again = exchange->Want(true), off = exchange->Want(false);
  EXPECT_TRUE(TimesExchange::IsOn(on) && TimesExchange::IsOn(again) && !TimesExchange::IsOn(off));
  EXPECT_NE(on, again);
  EXPECT_FALSE(exchange->Reached(off));
  std::thread executor([&] { exchange->Reach(exchange->Await(off, 1), false); });
  executor.join();
  EXPECT_TRUE(exchange->Reached(off));
  EXPECT_TRUE(exchange->Reached(on) && exchange->Reached(again)) << "a later wish has replaced them";
  EXPECT_FALSE(exchange->Reached(exchange->Want(true)));
}

TEST(TimesExchangeTest, EntriesArriveOnceAndInOrderWhileOthersAreAdded) {
  constexpr uint64_t kEntries = 3 * TimesExchange::kCapacity;
  const auto exchange = std::make_unique<TimesExchange>();
  uint64_t taken = 0;
  std::atomic<uint64_t> reader{0};
  std::thread executor([&] {
    for (uint64_t i = 0; i < kEntries; ++i) {
      while (i - reader.load() >= TimesExchange::kCapacity) std::this_thread::yield();
      exchange->Add(Entry(i));
    }
  });
  while (taken != kEntries) {
    exchange->Take([&](const TimesExchange::Entry& entry) {
      ASSERT_EQ(entry.queue, 7u);
      ASSERT_EQ(entry.time.number, taken++);
    });
    reader.store(taken);
  }
  executor.join();
}

TEST(TimesExchangeTest, WhatDoesNotFitIsDropped) {
  const auto exchange = std::make_unique<TimesExchange>();
  for (uint64_t i = 0; i < TimesExchange::kCapacity + 10; ++i) exchange->Add(Entry(i));
  uint64_t taken = 0, last = 0;
  exchange->Take([&](const TimesExchange::Entry& entry) { ++taken, last = entry.time.number; });
  EXPECT_EQ(taken, TimesExchange::kCapacity);
  EXPECT_EQ(last, TimesExchange::kCapacity - 1);
}

TEST(ReplayTimesTest, OperationsBelongToLaunchesInTheOrderInWhichTheyRan) {
  ReplayTimes replays;
  // Three launches of one, three and one operations.
  const auto counts = std::make_shared<const OperationCounts>(OperationCounts{1, 4, 5});
  replays.Begin(10, 2, 100, counts);
  replays.Begin(11, 3, 200, counts);
  EXPECT_TRUE(replays.Add({11, 1000, 1001}).times.empty());
  for (const uint64_t began : {30, 10, 50, 20})
    EXPECT_TRUE(replays.Add({10, began, began + 5}).times.empty());
  const ReplayTimes::Times times = replays.Add({10, 40, 45});
  EXPECT_EQ(times.queue, 2u);
  ASSERT_EQ(times.times.size(), 5u);
  const uint64_t launches[] = {100, 101, 101, 101, 102};
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(times.times[i].number, launches[i]);
    EXPECT_EQ(times.times[i].began_ns, 10 * (i + 1));
    EXPECT_EQ(times.times[i].ended_ns, 10 * (i + 1) + 5);
  }
  EXPECT_TRUE(replays.Add({10, 60, 65}).times.empty()) << "it is complete";
}

TEST(ReplayTimesTest, LaunchesWithoutOperationsHaveNoTime) {
  ReplayTimes replays;
  replays.Begin(1, 0, 0, std::make_shared<const OperationCounts>(OperationCounts{0, 1, 1}));
  const ReplayTimes::Times times = replays.Add({1, 5, 6});
  ASSERT_EQ(times.times.size(), 1u);
  EXPECT_EQ(times.times[0].number, 1u);
}

TEST(ReplayTimesTest, IncompleteReplaysAreForgotten) {
  ReplayTimes replays;
  const auto counts = std::make_shared<const OperationCounts>(OperationCounts{1});
  for (uint64_t tag = 0; tag <= ReplayTimes::kMaxReplays; ++tag) replays.Begin(tag, 0, tag, counts);
  EXPECT_TRUE(replays.Add({0, 1, 2}).times.empty());
  EXPECT_EQ(replays.Add({1, 1, 2}).times.size(), 1u);
}

}  // namespace
}  // namespace xpud::executor::process
