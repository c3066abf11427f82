#include "drivers/cpu/worker_pool.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <set>
#include <thread>
#include <vector>

#include "drivers/cpu/scratch.h"
#include "gtest/gtest.h"

namespace xpud::drivers::cpu {
namespace {

using std::chrono_literals::operator""ms;

// Adds one to the counter of its group.
void CountGroup(const void* const* arguments, const uint32_t group[3], void*) {
  auto* const counters = *static_cast<std::atomic<uint32_t>* const*>(arguments[0]);
  const auto& groups = *static_cast<const ze_group_count_t*>(arguments[1]);
  counters[(group[2] * groups.groupCountY + group[1]) * groups.groupCountX + group[0]].fetch_add(
      1, std::memory_order_relaxed);
}

// Runs the launch and returns the number of groups that did not run exactly once.
size_t WronglyRun(WorkerPool& pool, const ze_group_count_t& groups) {
  std::vector<std::atomic<uint32_t>> counters(size_t{groups.groupCountX} * groups.groupCountY *
                                              groups.groupCountZ);
  std::atomic<uint32_t>* const data = counters.data();
  const void* const arguments[] = {&data, &groups};
  pool.Run(CountGroup, arguments, groups);
  size_t wrong = 0;
  for (const auto& counter : counters) wrong += counter.load(std::memory_order_relaxed) != 1;
  return wrong;
}

TEST(WorkerPool, EveryGroupRunsOnce) {
  for (const uint32_t workers : {1u, 2u, 5u}) {
    WorkerPool pool(workers);
    for (const ze_group_count_t groups :
         {ze_group_count_t{1, 1, 1}, {2, 1, 1}, {7, 5, 3}, {1, 1, 9}, {4096, 1, 1}}) {
      EXPECT_EQ(WronglyRun(pool, groups), 0u) << workers << " workers, " << groups.groupCountX << " groups";
    }
  }
}

struct Ends {
  std::atomic<bool> first_runs{false}, last_runs{false};
  std::thread::id first, last;
};

// The first group waits until the last one runs, and the other way round.
void MeetAtTheEnds(const void* const* arguments, const uint32_t group[3], void*) {
  Ends& ends = **static_cast<Ends* const*>(arguments[0]);
  if (group[0] != 0 && group[0] != 3) return;
  (group[0] == 0 ? ends.first : ends.last) = std::this_thread::get_id();
  (group[0] == 0 ? ends.first_runs : ends.last_runs) = true;
  std::atomic<bool>& other = group[0] == 0 ? ends.last_runs : ends.first_runs;
  const auto end = std::chrono::steady_clock::now() + 10'000ms;
  while (!other && std::chrono::steady_clock::now() < end) std::this_thread::yield();
}

TEST(WorkerPool, AnotherWorkerBeginsWithTheLastGroup) {
  WorkerPool pool(2);
  for (int i = 0; i < 20; ++i) {
    Ends ends;
    Ends* const pointer = &ends;
    const void* const arguments[] = {&pointer};
    pool.Run(MeetAtTheEnds, arguments, {4, 1, 1});
    EXPECT_EQ(ends.first, std::this_thread::get_id());
    EXPECT_NE(ends.last, ends.first);
  }
}

// A part of a launch from group `next` on, which is then the next one.
xpud_launch_part_desc_t Part(uint64_t nanoseconds, uint64_t& next) {
  return {XPUD_STRUCTURE_TYPE_LAUNCH_PART_DESC, nullptr, nanoseconds, &next, nullptr, nullptr, nullptr, 0};
}

// After each part, all groups before the returned number have run once, and no others.
TEST(WorkerPool, PartsRunEveryGroupOnceAndInOrder) {
  for (const uint32_t workers : {1u, 2u, 5u}) {
    for (const uint64_t nanoseconds : {0, 2000, 1'000'000'000}) {
      WorkerPool pool(workers);
      const ze_group_count_t groups = {37, 11, 3};
      constexpr uint64_t kGroups = 37 * 11 * 3;
      std::vector<std::atomic<uint32_t>> counters(kGroups);
      std::atomic<uint32_t>* const data = counters.data();
      const void* const arguments[] = {&data, &groups};
      uint64_t next = 0;
      int parts = 0;
      WorkerPool::OpenLaunch open;
      for (; next < kGroups; ++parts) {
        const uint64_t before = next;
        pool.RunPart(CountGroup, arguments, groups, Part(nanoseconds, next), open);
        ASSERT_GT(next, before);
        for (uint64_t i = 0; i < kGroups; ++i) ASSERT_EQ(counters[i].load(), i < next ? 1u : 0u) << i;
      }
      EXPECT_EQ(next, kGroups);
      if (nanoseconds == 1'000'000'000) {
        EXPECT_EQ(parts, 1);
      } else if (nanoseconds == 0 && workers == 1) {
        EXPECT_EQ(parts,
                  kGroups);  // with more, the others run as many as they can until the first has run one
      }
    }
  }
}

TEST(WorkerPool, APartGoesOnAsLongAsItMay) {
  struct Asked {
    int times = 0;
  };
  for (const uint32_t workers : {1u, 3u}) {
    WorkerPool pool(workers);
    const ze_group_count_t groups = {100, 1, 1};
    std::vector<std::atomic<uint32_t>> counters(100);
    std::atomic<uint32_t>* const data = counters.data();
    const void* const arguments[] = {&data, &groups};
    Asked asked;
    uint64_t next = 0;
    xpud_launch_part_desc_t part = Part(0, next);
    part.goes_on = [](const void* context) -> int {
      return ++const_cast<Asked*>(static_cast<const Asked*>(context))->times < 5;
    };
    part.context = &asked;
    WorkerPool::OpenLaunch open;
    pool.RunPart(CountGroup, arguments, groups, part, open);
    if (workers == 1) EXPECT_EQ(next, 5u);
    EXPECT_GE(next, static_cast<uint64_t>(asked.times));
    EXPECT_TRUE(asked.times == 5 || next == 100u);
    for (uint64_t i = 0; i < 100; ++i) EXPECT_EQ(counters[i].load(), i < next ? 1u : 0u) << i;
  }
}

// A launch of which its owner runs one group, and leaves the others. With `waits`, these wait for GoOn.
class LeftLaunch {
 public:
  static constexpr uint32_t kGroups = 100, kMany = 1'000'000;

  LeftLaunch(WorkerPool& pool, uint32_t groups, bool waits) : pool_(pool), groups_(groups), goes_on_(!waits) {
    Run();
  }
  ~LeftLaunch() {
    GoOn();
    open.End();
  }

  void GoOn() { goes_on_.store(true); }
  // Returns whether all groups have run.
  bool Run() {
    xpud_launch_part_desc_t part = Part(0, next_);
    part.helped_ns = &helped_ns;
    pool_.RunPart(RunGroup, arguments_, {groups_, 1, 1}, part, open);
    return next_ == groups_;
  }
  bool AwaitCount(uint32_t least) const {
    for (int i = 0; i < 10'000 && count.load() < least; ++i) std::this_thread::sleep_for(1ms);
    return count.load() >= least;
  }

  std::atomic<uint32_t> count{0}, running{0};
  uint64_t helped_ns = 0;
  WorkerPool::OpenLaunch open;

 private:
  static void RunGroup(const void* const* arguments, const uint32_t*, void*) {
    LeftLaunch& launch = **static_cast<LeftLaunch* const*>(arguments[0]);
    launch.running.fetch_add(1);
    if (std::this_thread::get_id() != launch.owner_) {
      while (!launch.goes_on_.load()) std::this_thread::sleep_for(1ms);
      std::this_thread::sleep_for(1ms);
    }
    launch.count.fetch_add(1);
    launch.running.fetch_sub(1);
  }

  WorkerPool& pool_;
  const uint32_t groups_;
  const std::thread::id owner_ = std::this_thread::get_id();
  std::atomic<bool> goes_on_;
  LeftLaunch* const itself_ = this;
  const void* const arguments_[1] = {&itself_};
  uint64_t next_ = 0;
};

TEST(WorkerPool, AnOpenLaunchGoesOnWhileItsOwnerIsAway) {
  WorkerPool pool(3);
  LeftLaunch launch(pool, LeftLaunch::kGroups, /*waits=*/true);
  ASSERT_TRUE(launch.open.is_open());
  launch.GoOn();
  ASSERT_TRUE(launch.AwaitCount(LeftLaunch::kGroups));
  EXPECT_TRUE(launch.Run());
  EXPECT_FALSE(launch.open.is_open());
  EXPECT_EQ(launch.count, LeftLaunch::kGroups);
  // 99 groups of a millisecond or more, of three workers' time; the last ones may not be counted yet.
  EXPECT_GE(launch.helped_ns, 25'000'000u);
}

TEST(WorkerPool, AnOpenLaunchEndsWithoutItsOtherGroups) {
  WorkerPool pool(2);
  LeftLaunch launch(pool, LeftLaunch::kMany, /*waits=*/false);
  ASSERT_TRUE(launch.AwaitCount(3));
  launch.open.End();
  EXPECT_EQ(launch.running, 0u);
  const uint32_t count = launch.count;
  EXPECT_LT(count, LeftLaunch::kMany);
  EXPECT_EQ(WronglyRun(pool, {100, 1, 1}), 0u);
  EXPECT_EQ(launch.count, count);
}

TEST(WorkerPool, OnlySomeLaunchesStayOpen) {
  WorkerPool pool(3);
  std::vector<std::unique_ptr<LeftLaunch>> launches;
  for (int i = 0; i < 20; ++i)
    launches.push_back(std::make_unique<LeftLaunch>(pool, LeftLaunch::kMany, /*waits=*/false));
  EXPECT_EQ(std::ranges::count_if(launches, [](const auto& launch) { return launch->open.is_open(); }), 8);
}

// Launches lose nothing beside others, whether they stay open or not.
TEST(WorkerPool, OtherLaunchesRunBesideOpenOnes) {
  WorkerPool pool(3);
  std::vector<std::unique_ptr<LeftLaunch>> launches;
  for (int i = 0; i < 20; ++i)
    launches.push_back(std::make_unique<LeftLaunch>(pool, LeftLaunch::kGroups, /*waits=*/false));
  for (int i = 0; i < 50; ++i) ASSERT_EQ(WronglyRun(pool, {64, 2, 1}), 0u);
  for (const auto& launch : launches) {
    while (!launch->Run()) continue;
    EXPECT_EQ(launch->count, LeftLaunch::kGroups);
  }
}

TEST(WorkerPool, NoGroupsRunNothing) {
  WorkerPool pool(2);
  EXPECT_EQ(WronglyRun(pool, {0, 1, 1}), 0u);
  EXPECT_EQ(WronglyRun(pool, {5, 0, 3}), 0u);
}

TEST(WorkerPool, ConcurrentLaunchesDoNotMix) {
  WorkerPool pool(3);
  std::atomic<size_t> wrong{0};
  std::vector<std::thread> launchers;
  for (uint32_t t = 0; t < 4; ++t) {
    launchers.emplace_back([&, t] {
      for (uint32_t i = 0; i < 300; ++i) wrong += WronglyRun(pool, {2 + (i + t) % 37, 1 + t, 1});
    });
  }
  for (std::thread& launcher : launchers) launcher.join();
  EXPECT_EQ(wrong.load(), 0u);
}

TEST(WorkerPool, MoreLaunchersThanSlotsStillFinish) {
  WorkerPool pool(2);
  std::atomic<size_t> wrong{0};
  std::vector<std::thread> launchers;
  for (int t = 0; t < 24; ++t) {
    launchers.emplace_back([&] {
      for (int i = 0; i < 20; ++i) wrong += WronglyRun(pool, {64, 1, 1});
    });
  }
  for (std::thread& launcher : launchers) launcher.join();
  EXPECT_EQ(wrong.load(), 0u);
}

// Each group waits until the other runs: only two threads at once can finish.
void Meet(const void* const* arguments, const uint32_t*, void*) {
  auto* const arrived = *static_cast<std::atomic<int>* const*>(arguments[0]);
  arrived->fetch_add(1);
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (arrived->load() < 2 && std::chrono::steady_clock::now() < end) std::this_thread::yield();
}

TEST(WorkerPool, SleepingWorkersWakeForALaunch) {
  WorkerPool pool(2);
  for (int round = 0; round < 3; ++round) {
    std::atomic<int> arrived{0};
    std::atomic<int>* const pointer = &arrived;
    const void* const arguments[] = {&pointer};
    const auto begin = std::chrono::steady_clock::now();
    pool.Run(Meet, arguments, {2, 1, 1});
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10))
        << "the second worker never came";
    std::this_thread::sleep_for(std::chrono::milliseconds(5));  // long enough to fall asleep
  }
}

void FillScratch(const void* const*, const uint32_t group[3], void* scratch) {
  std::memset(scratch, static_cast<int>(group[0]), XPUD_HOST_SCRATCH_BYTES);
}

TEST(WorkerPool, ScratchIsPrivateToItsThread) {
  void* const mine = ThreadScratch();
  EXPECT_EQ(reinterpret_cast<uintptr_t>(mine) % 64, 0u);
  EXPECT_EQ(ThreadScratch(), mine);
  void* others = nullptr;
  std::thread([&] { others = ThreadScratch(); }).join();
  EXPECT_NE(others, nullptr);
  WorkerPool pool(3);
  pool.Run(FillScratch, nullptr, {8, 1, 1});  // TSan reports it if two workers share scratch
}

}  // namespace
}  // namespace xpud::drivers::cpu
