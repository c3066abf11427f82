#include "daemon/executor/process/kernel_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "daemon/executor/process/test_ring.h"

namespace xpud::executor::process {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// The executor's end of the rings is not used: the tests look at what lies in them.
class KernelTableTest : public ::testing::Test {
 protected:
  KernelTableTest() {
    ends_.push_back(*PrivateRing::Create());
    ends_.push_back(*PrivateRing::Create());
    rings_.Connect(ends_);
    table_.Add(add_);
    table_.Add(mul_);
  }

  // Takes the messages of a ring, as "what kernel/module".
  std::vector<std::string> TakeSent(size_t ring) {
    std::vector<std::string> sent;
    seen_[ring] = VisitSent(ends_[ring], seen_[ring],
                            [&](const Message& message) { sent.push_back(Describe(message)); });
    return sent;
  }
  static std::string Describe(const Message& message) {
    const std::string module = std::to_string(message.load.module);
    switch (message.kind) {
      case MessageKind::kLoadModule:
        return "module " + module;
      case MessageKind::kLoadKernel:
        return "kernel " + std::to_string(message.kernel) + "/" + module;
      case MessageKind::kUnloadKernel:
        return "unload " + std::to_string(message.kernel) + "/" + module;
      default:
        return "another message";
    }
  }

  const kernels::ModuleImage first_ = {.bytes = "first"}, second_ = {.bytes = "second"};
  const kernels::Kernel add_ = {.index = 0, .module = &first_, .entry = "add"};
  const kernels::Kernel mul_ = {.index = 1, .module = &second_, .entry = "mul"};
  std::vector<PrivateRing> ends_;
  ExecutorRings rings_{RingPlan{.interactive = 2}};
  KernelTable table_{rings_};
  uint64_t seen_[2] = {};
};

TEST_F(KernelTableTest, ARingGetsAKernelOnce) {
  EXPECT_TRUE(table_.Load(0, 0));
  EXPECT_TRUE(table_.Load(0, 0));
  EXPECT_TRUE(table_.Load(1, 0));
  EXPECT_THAT(TakeSent(0), ElementsAre("module 0", "kernel 0/0"));
  EXPECT_THAT(TakeSent(1), ElementsAre("module 0", "kernel 0/0"));
}

TEST_F(KernelTableTest, TheNextExecutorGetsKernelsAgain) {
  EXPECT_TRUE(table_.Load(0, 0));
  TakeSent(0);
  table_.ForgetLoaded();
  EXPECT_TRUE(table_.Load(0, 0));
  EXPECT_THAT(TakeSent(0), ElementsAre("module 0", "kernel 0/0"));
}

TEST_F(KernelTableTest, UnneededKernelsAreUnloadedWhereTheyWereLoaded) {
  EXPECT_TRUE(table_.Load(1, 0));
  EXPECT_TRUE(table_.Load(0, 1));
  TakeSent(0), TakeSent(1);
  std::vector<const kernels::Kernel*> kernels = {&add_, &mul_};
  table_.Unload(kernels, {1});
  EXPECT_THAT(kernels, ElementsAre(&mul_));
  EXPECT_THAT(TakeSent(0), IsEmpty());
  EXPECT_THAT(TakeSent(1), ElementsAre("unload 0/0"));
}

TEST_F(KernelTableTest, NumbersOfUnloadedModulesAreUsedAgain) {
  EXPECT_TRUE(table_.Load(0, 0));
  std::vector<const kernels::Kernel*> kernels = {&add_};
  table_.Unload(kernels, {});
  EXPECT_THAT(kernels, IsEmpty());
  TakeSent(0);
  EXPECT_TRUE(table_.Load(0, 1));
  EXPECT_THAT(TakeSent(0), ElementsAre("module 0", "kernel 1/0"));
}

TEST_F(KernelTableTest, AnIndexThatIsUsedAgainHasNotRun) {
  table_.CountRun(0);
  EXPECT_EQ(table_.runs(0), 1u);
  std::vector<const kernels::Kernel*> kernels = {&add_};
  table_.Unload(kernels, {});
  const kernels::Kernel another = {.index = 0, .module = &second_, .entry = "another"};
  table_.Add(another);
  EXPECT_EQ(table_.runs(0), 0u);
}

TEST_F(KernelTableTest, AFullRingLoadsLater) {
  while (rings_.Send(0, std::vector<std::byte>(kRingBytes / 4))) continue;
  EXPECT_FALSE(table_.Load(0, 0));
  std::vector<const kernels::Kernel*> kernels = {&add_};
  table_.Unload(kernels, {});  // nothing to unload
  EXPECT_THAT(kernels, IsEmpty());
}

}  // namespace
}  // namespace xpud::executor::process
