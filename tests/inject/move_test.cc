// Each call of Level Zero that moves a chunk fails: the chunk's contents are never lost, and after an error
// the chunk is where it was.
#include <gtest/gtest.h>
#include <level_zero/ze_api.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "daemon/executor/api/mover.h"
#include "daemon/executor/testing/device_fixture.h"
#include "proto/base/mapping.h"
#include "tests/inject/plan.h"

namespace xpud::inject {
namespace {

using executor::Chunk;
using executor::HostMemory;
using executor::HostParts;
using executor::Mover;
using executor::testing::Driven;

constexpr uint64_t kBytes = (uint64_t{2} << 20) + 12;
constexpr uint64_t kMaxCalls = 100;  // of one move
constexpr char kAll[] = "";          // calls of all names

Plan* plan = nullptr;  // set by main

class MoveInjection : public executor::testing::DeviceTest {
 protected:
  void SetUp() override {
    plan->fails = 0;
    DeviceTest::SetUp();
    fd_ = *CreateSealedMemfd("xpud-test", kBytes);
    mapping_ = *Mapping::Map(fd_, kBytes, Access::kReadWrite);
    memory_ = *device_->Import({{mapping_.data(), kBytes}, fd_.get()});
    chunk_ = *device_->ReserveChunk(kBytes);
    Fill();
  }
  void TearDown() override {
    plan->fails = 0;
    chunk_ = nullptr;
    memory_ = nullptr;
    DeviceTest::TearDown();
  }
  void Fill() { std::memset(mapping_.data(), 'x', kBytes); }
  void Clear() { std::memset(mapping_.data(), 0, kBytes); }
  bool IsFull() const {
    return std::count(mapping_.data(), mapping_.data() + kBytes, std::byte{'x'}) == int64_t{kBytes};
  }
  absl::Status Move(bool leaves) {
    std::optional<absl::Status> done;
    const Mover::Done note = [&](absl::Status status) { done = std::move(status); };
    const HostParts parts = {{memory_.get(), 0, kBytes}};
    Mover& mover = *device_->mover();
    const auto move =
        leaves ? mover.StartLeave(*chunk_, parts, note) : mover.StartReturn(*chunk_, parts, note);
    PollUntil([&] { return done.has_value(); });
    return *done;
  }
  // Fails the move's calls named `only` one after another, until it has no more. Returns how many failed.
  uint64_t FailEachOf(const std::string& only, bool leaves, ze_result_t result, bool sticks) {
    for (uint64_t call = 1; call < kMaxCalls; ++call) {
      if (leaves) Clear();
      Arm(only, call, result, sticks);
      const absl::Status moved = Move(leaves);
      const bool has_failed = plan->failed_in != 0;
      const std::string name = plan->failed_call;
      plan->fails = 0;
      SCOPED_TRACE(absl::StrCat(leaves ? "leave" : "return", ", call ", call, " ", name, " 0x",
                                absl::Hex(static_cast<uint32_t>(result)), ": ",
                                std::string(moved.message())));
      if (!has_failed) EXPECT_TRUE(moved.ok());
      // Both ways work now, from where it is, and the contents are those of before.
      if (!moved.ok()) EXPECT_TRUE(Move(leaves).ok());
      if (leaves) EXPECT_TRUE(IsFull());
      if (!leaves) Clear();
      EXPECT_TRUE(Move(!leaves).ok());
      if (!leaves) EXPECT_TRUE(IsFull());
      if (!has_failed || HasFailure()) return call - 1;
    }
    ADD_FAILURE() << "the move has too many calls";
    return kMaxCalls;
  }
  static void Arm(const std::string& only, uint64_t call, ze_result_t result, bool sticks) {
    plan->fails = 0;
    plan->only[only.copy(plan->only, sizeof(plan->only) - 1)] = '\0';
    plan->result = static_cast<uint32_t>(result);
    plan->sticks = sticks ? 1 : 0;
    plan->failed_in = 0;
    plan->failed_call[0] = '\0';
    plan->calls = 0;
    plan->fails = call;
  }
  // Does so with both ways: with all calls, whatever the Nth happens to be (executors have other work too),
  // and with those of each name.
  void FailEach(ze_result_t result, bool sticks, const std::vector<std::string>& names) {
    uint64_t failed = 0;
    const auto fail_both = [&](const std::string& only) {
      for (const bool leaves : {false, true}) {
        failed += FailEachOf(only, leaves, result, sticks);
        EXPECT_TRUE(Move(leaves).ok());
      }
    };
    fail_both(kAll);
    for (const std::string& name : names) {
      failed = 0;
      fail_both(name);
      EXPECT_GT(failed, 0u) << name << " has never failed";
    }
  }

  UniqueFd fd_;
  Mapping mapping_;
  std::unique_ptr<HostMemory> memory_;
  std::unique_ptr<Chunk> chunk_;
};

TEST_P(MoveInjection, CallsThatFailLoseNothing) {
  for (const ze_result_t result : {ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY, ZE_RESULT_ERROR_UNKNOWN}) {
    FailEach(result, false,
             {"zePhysicalMemCreate", "zeVirtualMemMap", "zeCommandListAppendMemoryCopy", "zeVirtualMemUnmap",
              "zePhysicalMemDestroy"});
  }
}

// As another device does it. Where it fails there is an error, and no other numbers.
TEST_P(MoveInjection, MappingMemoryForAnotherDeviceFailsWhole) {
  const std::vector<std::string> names = {kAll, "zeVirtualMemReserve", "zePhysicalMemCreate",
                                          "zeVirtualMemMap"};
  EXPECT_TRUE(Move(false).ok());
  for (const ze_result_t result : {ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY, ZE_RESULT_ERROR_UNKNOWN}) {
    for (const std::string& name : names) {
      uint64_t call = 1;
      for (bool has_failed = true; has_failed && call < kMaxCalls; ++call) {
        Arm(name, call, result, false);
        const auto memory = device_->ExportMemory(*chunk_);
        const auto mapped = memory.ok() ? device_->MapPeer(*memory, kBytes) : memory.status();
        has_failed = plan->failed_in != 0;
        plan->fails = 0;
        SCOPED_TRACE(absl::StrCat("call ", call, " ", plan->failed_call));
        if (name != kAll) EXPECT_EQ(mapped.ok(), !has_failed) << mapped.status();
        if (!has_failed) EXPECT_TRUE(mapped.ok()) << mapped.status();
        if (mapped.ok()) EXPECT_EQ(Read(**mapped), std::string(kPart, 'x'));
        EXPECT_EQ(Read(*chunk_), std::string(kPart, 'x'));
      }
      EXPECT_GT(call, 2u) << name << " has never failed";
      EXPECT_LT(call, kMaxCalls);
    }
  }
  EXPECT_TRUE(Move(true).ok());
}

class ExecutorMoveInjection : public MoveInjection {};

TEST_P(ExecutorMoveInjection, MovesGoOnWhereTheDeviceIsLost) {
  FailEach(ZE_RESULT_ERROR_DEVICE_LOST, true,
           {"zePhysicalMemCreate", "zeVirtualMemMap", "zeMemGetAllocProperties",
            "zeCommandListAppendMemoryCopy", "zeVirtualMemUnmap"});
  EXPECT_GT(device_->executor(executor::ExecutorRole::kAll).replaced, 0u);
}

INSTANTIATE_TEST_SUITE_P(Device, MoveInjection,
                         ::testing::Values(Driven::kInProcess, Driven::kByExecutor, Driven::kByTwoExecutors),
                         executor::testing::NameOf);
INSTANTIATE_TEST_SUITE_P(Device, ExecutorMoveInjection,
                         ::testing::Values(Driven::kByExecutor, Driven::kByTwoExecutors),
                         executor::testing::NameOf);

}  // namespace
}  // namespace xpud::inject

int main(int argc, char** argv) {
  std::string path;
  if (std::getenv(xpud::inject::kPlanVariable) == nullptr) {  // otherwise this is an executor
    path = absl::StrCat(::testing::TempDir(), "inject-move-", getpid());
    xpud::inject::plan = &xpud::inject::CreatePlan(path);
    setenv(xpud::inject::kPlanVariable, path.c_str(), 1);
  }
  const int result = xpud::executor::testing::RunDeviceTests(argc, argv, XPUD_DRIVER_PATH);
  unlink(path.c_str());
  return result;
}
