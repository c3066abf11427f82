#include "deploy/agent/grants/turns.h"

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "proto/base/mutex.h"

namespace xpud::agent {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

// Counts, and waits for a number.
class Tally {
 public:
  void Add() {
    const MutexLock lock(mutex_);
    ++count_;
    changed_.NotifyAll();
  }
  bool Await(int wanted) {
    const MutexLock lock(mutex_);
    const auto end = Clock::now() + 10s;
    while (count_ < wanted && Clock::now() < end) changed_.WaitFor(mutex_, 10ms);
    return count_ >= wanted;
  }
  int count() {
    const MutexLock lock(mutex_);
    return count_;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  int count_ ABSL_GUARDED_BY(mutex_) = 0;
};

TEST(Turns, ServeAUsersTasksOneAfterTheOtherAndInOrder) {
  auto turns = *Turns::Start();
  std::atomic<int> running{0};
  std::vector<int> order;  // of one user: no lock
  Tally done;
  for (int i = 0; i < 100; ++i) {
    turns->Add(1, Turns::Pace::kUnlimited, [&, i](const absl::Status& turn) {
      EXPECT_TRUE(turn.ok());
      EXPECT_EQ(running.fetch_add(1), 0);
      order.push_back(i);
      running.fetch_sub(1);
      done.Add();
    });
  }
  ASSERT_TRUE(done.Await(100));
  turns->End();
  for (int i = 0; i < 100; ++i) EXPECT_EQ(order[static_cast<size_t>(i)], i);
}

TEST(Turns, OfASlowUserDelayNoOther) {
  auto turns = *Turns::Start();
  Tally slow, fast;
  Mutex mutex;
  CondVar changed;
  bool may_end = false;
  for (int i = 0; i < 20; ++i) {
    turns->Add(1, Turns::Pace::kUnlimited, [&](const absl::Status&) {
      const MutexLock lock(mutex);
      while (!may_end) changed.Wait(mutex);
      slow.Add();
    });
  }
  for (int i = 0; i < 20; ++i)
    turns->Add(2, Turns::Pace::kUnlimited, [&](const absl::Status&) { fast.Add(); });
  EXPECT_TRUE(fast.Await(20));
  EXPECT_EQ(slow.count(), 0);
  {
    const MutexLock lock(mutex);
    may_end = true;
    changed.NotifyAll();
  }
  EXPECT_TRUE(slow.Await(20));
}

TEST(Turns, BeyondTheBurstArePaced) {
  auto turns = *Turns::Start();
  Tally done;
  const auto begin = Clock::now();
  for (int i = 0; i < Turns::kBurst + 5; ++i)
    turns->Add(1, Turns::Pace::kLimited, [&](const absl::Status&) { done.Add(); });
  EXPECT_TRUE(done.Await(Turns::kBurst));
  ASSERT_TRUE(done.Await(Turns::kBurst + 5));
  EXPECT_GE(Clock::now() - begin, 4 * Turns::kPeriod);
}

TEST(Turns, ThatNeverComeAreReported) {
  auto turns = *Turns::Start();
  Tally refused;
  for (int i = 0; i < 1000; ++i) {
    turns->Add(1, Turns::Pace::kLimited, [&](const absl::Status& turn) {
      if (absl::IsUnavailable(turn)) refused.Add();
    });
  }
  turns->End();
  EXPECT_GE(refused.count(), 900);
  turns->Add(1, Turns::Pace::kLimited, [&](const absl::Status& turn) {
    if (absl::IsUnavailable(turn)) refused.Add();
  });
  EXPECT_GE(refused.count(), 901);
}

}  // namespace
}  // namespace xpud::agent
