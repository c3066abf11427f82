#include "daemon/executor/process/recovery.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "daemon/executor/process/process_queue.h"
#include "daemon/executor/process/test_ring.h"

namespace xpud::executor::process {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

using Verdicts = std::vector<std::pair<uint64_t, std::string>>;

// The rings of one executor after another, without the processes. The test is the executor.
class RecoveryTest : public ::testing::Test {
 protected:
  RecoveryTest() {
    auto probes = *map_->AllocateHost(Recovery::kProbeBytes);
    probes_ = probes.get();
    recovery_ = std::make_unique<Recovery>(0, rings_, slots_, memory_, std::move(probes));
    Start();
  }

  void Start() {
    rings_.Disconnect();
    ends_.clear();
    ends_.push_back(*PrivateRing::Create());
    rings_.Connect(ends_);
  }
  // The executor has come to the end of its ring when it is lost; or to none of it.
  void Lose(const Recovery::Loss& loss, bool takes_all = true) {
    if (takes_all) ends_[0].control().head.store(rings_.position(0));
    rings_.TakeOffline();
    recovery_->Begin(loss);
  }
  void LoseAndReplace(const Recovery::Loss& loss) {
    Lose(loss);
    Start();
    recovery_->Resume();
  }
  std::unique_ptr<ProcessQueue> Queue(uint64_t owner) {
    return std::make_unique<ProcessQueue>(home_, slots_, *slots_.FindFree(), owner,
                                          PriorityClass::kInteractive);
  }
  void Work(ProcessQueue& queue) { ASSERT_TRUE(queue.Copy(&word_, &source_, 8).ok()); }
  // The work that this executor was given, as slots of queues. Probes are answered.
  std::vector<uint32_t> Execute() {
    std::vector<uint32_t> ran;
    VisitSent(ends_[0], 0, [&](const Message& message) {
      if (message.kind == MessageKind::kCopy) ran.push_back(message.queue);
      if (message.kind == MessageKind::kWriteValue)
        reinterpret_cast<uint64_t*>(probes_->address())[message.queue] = message.write.value;
    });
    return ran;
  }
  Verdicts TakeVerdicts() {
    Verdicts verdicts;
    for (Verdict& verdict : recovery_->TakeVerdicts())
      verdicts.emplace_back(verdict.owner, std::move(verdict.reason));
    return verdicts;
  }

  SharedExecutor executors_;
  std::unique_ptr<MemoryMap> map_ = *MemoryMap::Create(0, [] {});
  uint64_t word_ = 0, source_ = 0;
  MemoryHolder memory_{*map_, executors_, MemoryHolder::Clients::kAll};
  std::vector<PrivateRing> ends_;
  ExecutorRings rings_{RingPlan()};
  KernelTable kernels_{rings_};
  QueueHome home_{rings_, kernels_};
  QueueSlots slots_;
  const HostMemory* probes_ = nullptr;
  std::unique_ptr<Recovery> recovery_;
};

TEST_F(RecoveryTest, TheOnlySessionAtWorkIsBlamed) {
  const auto busy = Queue(1), idle = Queue(2);
  Work(*busy);
  LoseAndReplace({"it ended"});
  EXPECT_THAT(TakeVerdicts(), ElementsAre(Pair(1, "it ended")));
  EXPECT_THAT(Execute(), IsEmpty());
  Work(*idle);
  EXPECT_THAT(Execute(), ElementsAre(1));
}

TEST_F(RecoveryTest, WorkThatHadNotStartedIsRerunAndNobodyBlamed) {
  const auto queue = Queue(1);
  Work(*queue);
  Lose({"it ended"}, /*takes_all=*/false);
  Start();
  recovery_->Resume();
  EXPECT_THAT(TakeVerdicts(), IsEmpty());
  EXPECT_THAT(Execute(), ElementsAre(0));
}

TEST_F(RecoveryTest, AKillFromOutsideIsNobodysFault) {
  const auto first = Queue(1), second = Queue(2);
  Work(*first), Work(*second);
  LoseAndReplace({.text = "it ended", .from_outside = true});
  EXPECT_THAT(TakeVerdicts(), IsEmpty());
  EXPECT_THAT(Execute(), ElementsAre(0, 1));
}

TEST_F(RecoveryTest, SuspectsAreRerunAloneAndTheLastOneIsBlamed) {
  const auto first = Queue(1), second = Queue(2), third = Queue(3);
  Work(*first), Work(*second), Work(*third);
  LoseAndReplace({"it ended"});
  EXPECT_EQ(recovery_->suspects(), 3u);
  EXPECT_THAT(Execute(), IsEmpty());
  recovery_->Probe();
  EXPECT_EQ(Execute().size(), 1u);
  recovery_->Probe();  // cleared
  EXPECT_EQ(recovery_->suspects(), 2u);
  EXPECT_THAT(TakeVerdicts(), IsEmpty());
  recovery_->Probe();
  EXPECT_EQ(Execute().size(), 2u);
  recovery_->Probe();  // cleared, too
  EXPECT_EQ(recovery_->suspects(), 0u);
  const Verdicts verdicts = TakeVerdicts();
  ASSERT_EQ(verdicts.size(), 1u);
  EXPECT_EQ(verdicts[0].second,
            "it ended; the work in flight of all other sessions was rerun without a fault");
  recovery_->Probe();
  EXPECT_EQ(Execute().size(), 2u) << "the blamed session's work is dropped";
}

TEST_F(RecoveryTest, ASuspectWhoseRerunEndsTheNextExecutorIsBlamed) {
  const auto first = Queue(1), second = Queue(2);
  Work(*first), Work(*second);
  LoseAndReplace({"it ended"});
  recovery_->Probe();
  const std::vector<uint32_t> probed = Execute();
  ASSERT_EQ(probed.size(), 1u);
  std::fill_n(reinterpret_cast<uint64_t*>(probes_->address()), 2, 0);  // it ended before
  LoseAndReplace({"it ended again"});
  EXPECT_THAT(TakeVerdicts(), ElementsAre(Pair(probed[0] + 1, "it ended again")));
  recovery_->Probe();
  Execute();
  recovery_->Probe();
  EXPECT_EQ(recovery_->suspects(), 0u);
  EXPECT_THAT(TakeVerdicts(), IsEmpty());
  EXPECT_THAT(Execute(), ElementsAre(1 - probed[0]));
}

TEST_F(RecoveryTest, OnlySessionsThatHungAreSuspects) {
  const auto first = Queue(1), second = Queue(2);
  Work(*first), Work(*second);
  LoseAndReplace({.text = "a command ran for too long", .hung = {2}});
  EXPECT_THAT(TakeVerdicts(), ElementsAre(Pair(2, "a command ran for too long")));
  EXPECT_THAT(Execute(), ElementsAre(0));
}

TEST_F(RecoveryTest, SuspectsThatAreGoneAreNotProbed) {
  auto first = Queue(1), second = Queue(2);
  const auto third = Queue(3);
  Work(*first), Work(*second), Work(*third);
  LoseAndReplace({"it ended"});
  first.reset();
  second.reset();
  recovery_->Probe();
  EXPECT_EQ(recovery_->suspects(), 0u);
  EXPECT_THAT(TakeVerdicts(), ElementsAre(Pair(3, ::testing::HasSubstr("all other sessions"))));
}

TEST_F(RecoveryTest, MemoryThatTheExecutorCannotHaveEndsItsSession) {
  const auto queue = Queue(1);
  recovery_->FinishMemory(1, absl::ResourceExhaustedError("no room"));
  EXPECT_THAT(TakeVerdicts(),
              ElementsAre(Pair(1, "the replacement executor cannot import its host memory: no room")));
}

}  // namespace
}  // namespace xpud::executor::process
