// Queues that move: to a ring of another class, and to another executor.
#include "daemon/executor/process/process_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "daemon/executor/process/test_ring.h"

namespace xpud::executor::process {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr RingPlan kPlan = {.interactive = 2, .batch = 1, .realtime = 1};

// An executor's rings without the process: the tests look at what lies in them.
class Post {
 public:
  explicit Post(const RingPlan& plan) : rings(plan), home{rings, kernels} {
    for (uint32_t i = 0; i < plan.total(); ++i) ends_.push_back(*PrivateRing::Create());
    seen_.resize(plan.total());
    rings.Connect(ends_);
  }
  // What the ring got since the last call: "create 0 batch".
  std::vector<std::string> Take(size_t ring) {
    std::vector<std::string> sent;
    seen_[ring] = VisitSent(ends_[ring], seen_[ring],
                            [&](const Message& message) { sent.push_back(Describe(message)); });
    return sent;
  }
  static std::string Describe(const Message& message) {
    switch (message.kind) {
      case MessageKind::kCreateQueue:
        return absl::StrCat("create ", message.queue, " class ", static_cast<int>(message.create.priority),
                            " from ", message.create.first);
      case MessageKind::kDestroyQueue:
        return absl::StrCat("destroy ", message.queue);
      case MessageKind::kCopy:
        return absl::StrCat("copy ", message.queue);
      case MessageKind::kWriteValue:
        return absl::StrCat("write ", message.write.value);
      case MessageKind::kLaunch:
        return absl::StrCat("launch ", message.kernel);
      default:
        return "load";
    }
  }

  ExecutorRings rings;
  KernelTable kernels{rings};
  QueueHome home;

 private:
  std::vector<PrivateRing> ends_;
  std::vector<uint64_t> seen_;
};

class ProcessQueueTest : public ::testing::Test {
 protected:
  void Work(uint64_t mark) {
    ASSERT_TRUE(queue_.Copy(&word_, &source_, 8).ok());
    ASSERT_TRUE(queue_.WriteValue(&word_, mark).ok());
  }

  uint64_t word_ = 0, source_ = 0;
  QueueSlots slots_;
  Post all_{kPlan}, batch_{{.interactive = 4}};
  ProcessQueue queue_{all_.home, slots_, *slots_.FindFree(), 7, PriorityClass::kInteractive};
};

TEST_F(ProcessQueueTest, EachClassHasRingsOfItsOwn) {
  for (uint32_t slot = 0; slot < 8; ++slot) {
    EXPECT_EQ(kPlan.RingOf(PriorityClass::kInteractive, slot), slot % 2);
    EXPECT_EQ(kPlan.RingOf(PriorityClass::kBatch, slot), 2u);
    EXPECT_EQ(kPlan.RingOf(PriorityClass::kRealtime, slot), 3u);
    EXPECT_EQ(RingPlan().RingOf(PriorityClass::kRealtime, slot), 0u);
  }
  EXPECT_EQ(RingPlan::For(1).total(), 1u);
  EXPECT_EQ(RingPlan::For(4).total(), 7u);
}

TEST_F(ProcessQueueTest, AnIdleQueueChangesItsClassAtOnce) {
  Work(1);
  queue_.Completed(1);
  EXPECT_THAT(all_.Take(0), ElementsAre("create 0 class 1 from 0", "copy 0", "write 1"));
  queue_.SetPriority(PriorityClass::kBatch);
  EXPECT_TRUE(queue_.ready());
  EXPECT_THAT(all_.Take(0), ElementsAre("destroy 0"));
  EXPECT_THAT(all_.Take(2), ElementsAre("create 0 class 2 from 1"));
  Work(2);
  EXPECT_THAT(all_.Take(2), ElementsAre("copy 0", "write 2"));
  EXPECT_THAT(all_.Take(0), IsEmpty());
}

TEST_F(ProcessQueueTest, AQueueWithWorkMovesWhenItIsDoneAndTakesNoMoreUntilThen) {
  Work(1);
  queue_.Move(batch_.home);
  EXPECT_FALSE(queue_.ready());
  EXPECT_FALSE(&queue_.home() == &batch_.home);
  EXPECT_THAT(batch_.Take(0), IsEmpty());
  queue_.Completed(1);
  EXPECT_TRUE(queue_.ready());
  EXPECT_TRUE(&queue_.home() == &batch_.home);
  EXPECT_THAT(batch_.Take(0), ElementsAre("create 0 class 1 from 1"));
  Work(2);
  EXPECT_THAT(batch_.Take(0), ElementsAre("copy 0", "write 2"));
  int here = 0, there = 0;
  slots_.ForEachOf(all_.rings, [&](ProcessQueue&) { ++here; });
  slots_.ForEachOf(batch_.rings, [&](ProcessQueue&) { ++there; });
  EXPECT_EQ(here, 0);
  EXPECT_EQ(there, 1);
}

TEST_F(ProcessQueueTest, AMoveCanBeTakenBack) {
  Work(1);
  queue_.Move(batch_.home);
  queue_.Move(all_.home);
  EXPECT_TRUE(queue_.ready());
  queue_.Completed(1);
  EXPECT_TRUE(&queue_.home() == &all_.home);
  EXPECT_THAT(batch_.Take(0), IsEmpty());
}

// The executor is lost, and none can be started: its queues go on elsewhere, with kernels that are new there.
TEST_F(ProcessQueueTest, AfterALossItMovesWithItsWork) {
  const kernels::ModuleImage image = {.bytes = "code"};
  const kernels::Kernel kernel = {.index = 5, .module = &image, .entry = "add"};
  queue_.Move(batch_.home);
  kernels::LaunchList launches;
  launches.Add().Reset(&kernel, 1);
  ASSERT_TRUE(queue_.Launch(launches, {}).ok());
  batch_.rings.TakeOffline();
  queue_.Rewind(0);
  batch_.rings.Disconnect();
  queue_.MoveAfterLoss(all_.home);
  EXPECT_THAT(all_.Take(0), ElementsAre("create 0 class 1 from 0", "load", "load", "launch 5"));
  EXPECT_TRUE(queue_.ready());
}

TEST_F(ProcessQueueTest, KnowsWhetherItHadLongCommands) {
  kernels::LaunchList launches;
  launches.SetIdealNs(900'000);
  ASSERT_TRUE(queue_.Launch(launches, {}).ok());
  EXPECT_FALSE(queue_.had_long());
  launches.SetIdealNs(1'000'000);
  ASSERT_TRUE(queue_.Launch(launches, {}).ok());
  EXPECT_TRUE(queue_.had_long());
}

}  // namespace
}  // namespace xpud::executor::process
