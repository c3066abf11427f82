#include "proto/remote/event_loop.h"

#include <grpcpp/alarm.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

namespace xpud::remote {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

// Events of gRPC's alarms, on a queue with some threads.
class EventLoopTest : public testing::Test {
 protected:
  ~EventLoopTest() override {
    queue_.Shutdown();
    for (std::thread& thread : threads_) thread.join();
  }
  void StartThreads(int count) {
    for (int i = 0; i < count; ++i) threads_.emplace_back([this] { loop_.Run(); });
  }
  void After(microseconds delay, Event& event) {
    alarms_.push_back(std::make_unique<grpc::Alarm>());
    alarms_.back()->Set(&queue_, std::chrono::system_clock::now() + delay, &event);
  }

  grpc::CompletionQueue queue_;
  EventLoop loop_{queue_};
  std::vector<std::unique_ptr<grpc::Alarm>> alarms_;
  std::vector<std::thread> threads_;
};

TEST_F(EventLoopTest, WhatIsDoneLaterHappensInTheLoopsThread) {
  StartThreads(1);
  std::atomic<bool> happened{false};
  Event event = {[&, here = std::this_thread::get_id()](bool ok) {
    EXPECT_TRUE(ok);
    EXPECT_NE(std::this_thread::get_id(), here);
    happened.store(true);
  }};
  loop_.Start([&] { After(milliseconds(5), event); });
  while (!happened.load()) std::this_thread::yield();
}

TEST_F(EventLoopTest, EachEventHappensOnce) {
  StartThreads(3);
  constexpr int kEvents = 2000;
  std::atomic<int> happened{0};
  std::vector<std::atomic<int>> times(kEvents);
  std::vector<Event> events(kEvents);
  for (int i = 0; i < kEvents; ++i) {
    events[i].happened = [&, i](bool) {
      const auto until = std::chrono::steady_clock::now() + microseconds(i / 100 % 2 == 0 ? 0 : 150);
      while (std::chrono::steady_clock::now() < until) continue;
      ++times[i];
      ++happened;
    };
    After(microseconds(i % 7 * 300), events[i]);
  }
  while (happened.load() < kEvents) std::this_thread::yield();
  for (const std::atomic<int>& each : times) EXPECT_EQ(each.load(), 1);
}

TEST_F(EventLoopTest, AnEventThatTakesLongDoesNotHoldUpOthers) {
  StartThreads(2);
  std::atomic<bool> other{false}, over{false};
  Event waits = {[&](bool) {
    while (!other.load()) std::this_thread::yield();
    over.store(true);
  }};
  Event short_one = {[&](bool) { other.store(true); }};
  After(microseconds(0), waits);
  After(milliseconds(2), short_one);
  while (!over.load()) std::this_thread::yield();
}

}  // namespace
}  // namespace xpud::remote
