#include "daemon/executor/api/background.h"

#include <atomic>
#include <chrono>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace xpud::executor {
namespace {

using ::testing::ElementsAre;

TEST(Background, WorkRunsInOrderElsewhereAndWhatFollowsRunsHere) {
  std::atomic<int> wakes{0};
  Background background([&] { ++wakes; });
  std::vector<int> worked, followed;  // `worked` belongs to the other thread until it has woken this one
  const auto here = std::this_thread::get_id();
  std::atomic<bool> elsewhere{true};
  for (int i = 0; i < 3; ++i) {
    background.Run(
        [&, i] {
          worked.push_back(i);
          elsewhere = elsewhere && std::this_thread::get_id() != here;
        },
        [&, i] {
          followed.push_back(i);
          EXPECT_EQ(std::this_thread::get_id(), here);
        });
  }
  while (wakes < 3) std::this_thread::yield();
  EXPECT_TRUE(followed.empty());
  background.FinishDone();
  EXPECT_THAT(worked, ElementsAre(0, 1, 2));
  EXPECT_THAT(followed, ElementsAre(0, 1, 2));
  EXPECT_TRUE(elsewhere);
}

TEST(Background, WhatFollowsMayAskForMore) {
  std::atomic<int> wakes{0};
  Background background([&] { ++wakes; });
  int rounds = 0;
  std::function<void()> again = [&] {
    if (++rounds < 3) background.Run([] {}, again);
  };
  background.Run([] {}, again);
  while (rounds < 3) background.FinishDone();
  EXPECT_EQ(wakes, 3);
}

TEST(Background, ItsEndWaitsForTheWorkUnderWayAndDropsTheRest) {
  std::atomic<int> begun{0};
  std::atomic<bool> go{false};
  std::thread releaser;
  {
    Background background([] {});
    for (int i = 0; i < 2; ++i) {
      background.Run(
          [&] {
            ++begun;
            while (!go) std::this_thread::yield();
          },
          [] {});
    }
    while (begun == 0) std::this_thread::yield();
    releaser = std::thread([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      go = true;
    });
  }
  releaser.join();
  EXPECT_EQ(begun, 1);
}

}  // namespace
}  // namespace xpud::executor
