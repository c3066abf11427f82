// Each call of Level Zero that allocates, takes away, brings back or frees a chunk fails in turn.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <functional>
#include <set>
#include <string>

#include "daemon/executor/testing/device_fixture.h"
#include "tests/inject/plan_file.h"

namespace xpud::inject {
namespace {

using executor::Chunk;
using executor::ExecutorRole;
using executor::testing::Driven;
using executor::testing::PagesAt;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;

constexpr uint64_t kBytes = uint64_t{2} << 20;

PlanFile* plan = nullptr;  // main makes it before there are executors

class ChunkTest : public executor::testing::DeviceTest {
 protected:
  void TearDown() override {
    plan->Arm({});
    DeviceTest::TearDown();
  }
  // Calls `attempt` while its first call fails, then its second and so on, until none was left to fail.
  // `check` is called after each failure. Returns the names of what failed.
  std::set<std::string> FailEach(ze_result_t result, bool sticks, const std::function<void()>& attempt,
                                 const std::function<void(const std::string&)>& check) {
    std::set<std::string> failed;
    for (uint64_t call = 1;; ++call) {
      plan->Arm(
          {call, result, sticks, true});  // spare executors start meanwhile, which calls other functions
      attempt();
      plan->Disarm();
      const std::string name = plan->failed_call();
      if (name.empty()) return failed;
      SCOPED_TRACE(::testing::Message() << "call " << call << ": " << name);
      failed.insert(name);
      check(name);
      if (HasFailure()) return failed;
    }
  }
  std::vector<std::string> PagesOf(const Chunk& chunk) const {
    std::vector<std::string> pages;
    for (const pid_t pid : Drivers()) pages.push_back(PagesAt(pid, chunk));
    return pages;
  }
  std::string All(char value) const { return std::string(kPart, value); }
  // Waits until the executors have freed what was freed: they give no answer to that, but one to this.
  void AwaitFree() {
    if (!InProcess()) (void)device_->AllocateHost(1);  // which may be what fails
  }
  // Ends the loss of the device: this process could not do so itself. Executors are replaced.
  void Recover() {
    if (InProcess()) return plan->Arm({});
    ++losses_;
    PollUntil([&] {
      uint64_t replaced = 0;
      for (const ExecutorRole role : executor::kExecutorRoles) replaced += device_->executor(role).replaced;
      return replaced == losses_;
    });
  }

 private:
  uint64_t losses_ = 0;
};

TEST_P(ChunkTest, AllocationThatFailsGivesEverythingBack) {
  const uint64_t most = device_->properties().total_memory / 4 * 3 / kBytes * kBytes;
  const std::byte* const place = device_->AllocateChunk(most).value()->address();
  AwaitFree();
  absl::StatusOr<std::unique_ptr<Chunk>> chunk;
  const auto failed = FailEach(
      ZE_RESULT_ERROR_UNKNOWN, false, [&] { chunk = device_->AllocateChunk(most); },
      [&](const std::string& call) {
        EXPECT_EQ(chunk.status().code(), absl::StatusCode::kInternal) << chunk.status();
        EXPECT_THAT(std::string(chunk.status().message()), HasSubstr(call));
        auto next = device_->AllocateChunk(most);
        ASSERT_TRUE(next.ok()) << next.status();
        EXPECT_EQ((*next)->address(), place);
        next->reset();
        AwaitFree();
      });
  EXPECT_THAT(failed, IsSupersetOf({"zeVirtualMemQueryPageSize", "zeVirtualMemReserve", "zePhysicalMemCreate",
                                    "zeVirtualMemMap"}));
  EXPECT_EQ(failed.contains("zeMemGetAllocProperties"), !InProcess());
  ASSERT_TRUE(chunk.ok()) << chunk.status();
}

TEST_P(ChunkTest, MemoryThatCannotLeaveIsStillThere) {
  auto chunk = *device_->AllocateChunk(kBytes);
  Write(*chunk, 'a');
  absl::Status left;
  const auto failed = FailEach(
      ZE_RESULT_ERROR_UNKNOWN, false, [&] { left = chunk->Leave(); },
      [&](const std::string& call) {
        if (call == "zePhysicalMemDestroy") {  // it is away; what could be done?
          ASSERT_TRUE(left.ok()) << left;
          EXPECT_THAT(PagesOf(*chunk), Each("---p"));
          ASSERT_TRUE(chunk->Return().ok());
          Write(*chunk, 'a');
          return;
        }
        EXPECT_EQ(left.code(), absl::StatusCode::kInternal) << left;
        EXPECT_THAT(std::string(left.message()), HasSubstr(call));
        EXPECT_THAT(PagesOf(*chunk), Each("rw-s"));
        EXPECT_EQ(ReadByAll(*chunk), All('a'));
      });
  EXPECT_THAT(failed, IsSupersetOf({"zeVirtualMemUnmap", "zePhysicalMemDestroy"}));
  EXPECT_TRUE(left.ok()) << left;
  EXPECT_THAT(PagesOf(*chunk), Each("---p"));
}

TEST_P(ChunkTest, MemoryThatCannotReturnIsStillAway) {
  auto chunk = *device_->AllocateChunk(kBytes);
  Write(*chunk, 'a');
  ASSERT_TRUE(chunk->Leave().ok());
  absl::Status returned;
  const auto failed = FailEach(
      ZE_RESULT_ERROR_UNKNOWN, false, [&] { returned = chunk->Return(); },
      [&](const std::string& call) {
        EXPECT_EQ(returned.code(), absl::StatusCode::kInternal) << returned;
        EXPECT_THAT(std::string(returned.message()), HasSubstr(call));
        EXPECT_THAT(PagesOf(*chunk), Each("---p"));
      });
  EXPECT_THAT(failed, IsSupersetOf({"zePhysicalMemCreate", "zeVirtualMemMap"}));
  ASSERT_TRUE(returned.ok()) << returned;
  EXPECT_EQ(ReadByAll(*chunk), All('\0'));
}

TEST_P(ChunkTest, FreeingCannotFail) {
  std::unique_ptr<Chunk> chunk = *device_->AllocateChunk(kBytes);
  const std::byte* const place = chunk->address();
  const auto failed = FailEach(
      ZE_RESULT_ERROR_UNKNOWN, false,
      [&] {
        chunk = nullptr;
        AwaitFree();
      },
      [&](const std::string&) {
        chunk = *device_->AllocateChunk(kBytes);
        EXPECT_EQ(chunk->address(), place);
      });
  EXPECT_THAT(failed, IsSupersetOf({"zeVirtualMemFree", "zePhysicalMemDestroy"}));
}

// An executor whose device is lost ends. The next one has what is there and the addresses of what is away.
TEST_P(ChunkTest, DeviceIsLostWhileMemoryLeavesAndReturns) {
  auto chunk = *device_->AllocateChunk(kBytes);
  auto other = *device_->AllocateChunk(kBytes);
  Write(*other, 'b');
  absl::Status left, returned;
  FailEach(
      ZE_RESULT_ERROR_DEVICE_LOST, true, [&] { left = chunk->Leave(); },
      [&](const std::string& call) {
        EXPECT_EQ(left.code(), InProcess() ? absl::StatusCode::kInternal : absl::StatusCode::kOk) << left;
        if (InProcess()) EXPECT_THAT(std::string(left.message()), HasSubstr("device lost: " + call));
        Recover();
        if (InProcess()) return;
        EXPECT_THAT(PagesOf(*chunk), Each("---p"));
        ASSERT_TRUE(chunk->Return().ok());
      });
  ASSERT_TRUE(left.ok()) << left;
  FailEach(
      ZE_RESULT_ERROR_DEVICE_LOST, true, [&] { returned = chunk->Return(); },
      [&](const std::string&) {
        // Two executors: the first one has the new memory when the other one is lost.
        if (InProcess() || !returned.ok()) {
          const auto lost = InProcess() ? absl::StatusCode::kInternal : absl::StatusCode::kUnavailable;
          EXPECT_EQ(returned.code(), lost) << returned;
        }
        Recover();
        if (returned.ok()) EXPECT_EQ(ReadByAll(*chunk), All('\0'));
        if (returned.ok()) ASSERT_TRUE(chunk->Leave().ok());
        EXPECT_THAT(PagesOf(*chunk), Each("---p"));
      });
  ASSERT_TRUE(returned.ok()) << returned;
  EXPECT_EQ(ReadByAll(*chunk), All('\0'));
  EXPECT_EQ(ReadByAll(*other), All('b'));
}

INSTANTIATE_TEST_SUITE_P(Device, ChunkTest,
                         ::testing::Values(Driven::kInProcess, Driven::kByExecutor, Driven::kByTwoExecutors),
                         executor::testing::NameOf);

}  // namespace
}  // namespace xpud::inject

int main(int argc, char** argv) {
  const char* const inherited = std::getenv(xpud::inject::kPlanVariable);
  if (inherited != nullptr) return xpud::executor::testing::RunDeviceTests(argc, argv, XPUD_DRIVER_PATH);
  char folder[] = "/tmp/xpud-inject-XXXXXX";
  const std::string path = std::string(mkdtemp(folder)) + "/plan";
  xpud::inject::PlanFile plan(path, {});
  xpud::inject::plan = &plan;
  setenv(xpud::inject::kPlanVariable, path.c_str(), 1);
  const int status = xpud::executor::testing::RunDeviceTests(argc, argv, XPUD_DRIVER_PATH);
  std::filesystem::remove_all(folder);
  return status;
}
