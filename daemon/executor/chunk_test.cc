// Chunks whose memory leaves and returns, also while executors end.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "daemon/executor/api/address_space.h"
#include "daemon/executor/testing/device_fixture.h"

namespace xpud::executor::testing {
namespace {

using ::testing::Each;

constexpr uint64_t kBytes = AddressSpace::kChunkUnit;

class ChunkTest : public DeviceTest {
 protected:
  std::vector<std::string> PagesOf(const Chunk& chunk) const {
    std::vector<std::string> pages;
    for (const pid_t pid : Drivers()) pages.push_back(PagesAt(pid, chunk));
    return pages;
  }
  std::string Zero() const { return std::string(kPart, '\0'); }
  std::string All(char value) const { return std::string(kPart, value); }
};

class ExecutorChunkTest : public ChunkTest {
 protected:
  ExecutorStatus Status() const { return device_->executor(ExecutorRole::kAll); }
  void Kill() const { ASSERT_EQ(kill(Status().pid, SIGKILL), 0); }
  void AwaitNext() {
    PollUntil([&] { return Status().replaced == 1; });
  }
  // Stops the executor, and kills it once this thread waits for its answer in `ask`.
  template <typename Ask>
  absl::Status AskAndKill(Ask&& ask);
};

template <typename Ask>
absl::Status ExecutorChunkTest::AskAndKill(Ask&& ask) {
  EXPECT_EQ(kill(Status().pid, SIGSTOP), 0);
  const auto asker = static_cast<pid_t>(syscall(SYS_gettid));
  std::thread killer([this, asker] {
    const std::string path = absl::StrCat("/proc/self/task/", asker, "/syscall");
    const std::string waits = absl::StrCat(SYS_poll, " ");
    std::string call;
    do {
      call.clear();
      std::getline(std::ifstream(path), call);
    } while (!call.empty() && !absl::StartsWith(call, waits));
    Kill();
  });
  absl::Status answer = ask();
  killer.join();
  return answer;
}

TEST_P(ChunkTest, MemoryThatLeavesKeepsItsAddressesAndReturnsZeroed) {
  auto chunk = *device_->AllocateChunk(kBytes);
  auto other = *device_->AllocateChunk(kBytes);
  std::byte* const address = chunk->address();
  EXPECT_THAT(PagesOf(*chunk), Each("rw-s"));
  Write(*chunk, 'a');
  Write(*other, 'b');
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(chunk->Leave().ok());
    EXPECT_TRUE(chunk->Leave().ok()) << "it is away";
    EXPECT_THAT(PagesOf(*chunk), Each("---p")) << "reserved";
    auto meanwhile = *device_->AllocateChunk(kBytes);
    EXPECT_NE(meanwhile->address(), address);
    const absl::Status returned = chunk->Return();
    ASSERT_TRUE(returned.ok()) << returned;
    EXPECT_EQ(chunk->address(), address);
    EXPECT_EQ(ReadByAll(*chunk), Zero());
    Write(*chunk, 'c');
    EXPECT_EQ(ReadByAll(*chunk), All('c'));
  }
  EXPECT_EQ(ReadByAll(*other), All('b'));
  ASSERT_TRUE(chunk->Leave().ok());
  chunk.reset();  // while it is away
  EXPECT_EQ(device_->AllocateChunk(kBytes).value()->address(), address) << "its addresses are free";
}

// Of less than a page, of pages and a part, of more than one unit of addresses.
TEST_P(ChunkTest, SizesNeedNotBeWholePagesOrUnits) {
  for (const uint64_t bytes : {uint64_t{1}, kPart + 1, (uint64_t{2} << 20) + 1, kBytes - 1, 2 * kBytes + 1}) {
    auto chunk = *device_->AllocateChunk(bytes);
    auto next = *device_->AllocateChunk(1);
    EXPECT_EQ(chunk->bytes(), bytes);
    EXPECT_GE(next->address(), chunk->address() + bytes);
    ASSERT_TRUE(chunk->Leave().ok());
    ASSERT_TRUE(chunk->Return().ok());
    if (bytes < kPart) continue;
    Write(*chunk, 'a');
    EXPECT_EQ(ReadByAll(*chunk), All('a'));
    EXPECT_EQ(ReadByAll(*next).front(), '\0');
  }
}

TEST_P(ChunkTest, MemoryThatLeftIsThereForOthers) {
  const uint64_t most = device_->properties().total_memory / 4 * 3 / kBytes * kBytes;
  auto chunk = *device_->AllocateChunk(most);
  EXPECT_EQ(device_->AllocateChunk(most).status().code(), absl::StatusCode::kResourceExhausted);
  ASSERT_TRUE(chunk->Leave().ok());
  auto other = device_->AllocateChunk(most);
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_EQ(chunk->Return().code(), absl::StatusCode::kResourceExhausted);
  other->reset();
  const absl::Status returned = chunk->Return();
  EXPECT_TRUE(returned.ok()) << returned << "; a refusal leaves it away";
  EXPECT_EQ(ReadByAll(*chunk), Zero());
}

// Chunks that are there keep their contents; those that are away keep their addresses.
TEST_P(ExecutorChunkTest, NextExecutorHasWhatIsThereAndTheAddressesOfWhatIsAway) {
  auto there = *device_->AllocateChunk(kBytes);
  auto away = *device_->AllocateChunk(kBytes);
  auto back = *device_->AllocateChunk(kBytes);
  Write(*there, 'a');
  Write(*away, 'b');
  ASSERT_TRUE(away->Leave().ok());
  ASSERT_TRUE(back->Leave().ok());
  ASSERT_TRUE(back->Return().ok());
  Write(*back, 'c');
  Kill();
  AwaitNext();
  EXPECT_THAT(PagesOf(*there), Each("rw-s"));
  EXPECT_THAT(PagesOf(*away), Each("---p"));
  EXPECT_EQ(ReadByAll(*there), All('a'));
  EXPECT_EQ(ReadByAll(*back), All('c'));
  const absl::Status returned = away->Return();
  ASSERT_TRUE(returned.ok()) << returned;
  EXPECT_EQ(ReadByAll(*away), Zero());
}

TEST_P(ExecutorChunkTest, MemoryLeavesWithoutAnExecutorAndReturnsToTheNextOne) {
  auto chunk = *device_->AllocateChunk(kBytes);
  Write(*chunk, 'a');
  Kill();
  PollUntil([&] { return Status().lost == 1; });
  ASSERT_TRUE(chunk->Leave().ok());
  EXPECT_EQ(chunk->Return().code(), absl::StatusCode::kUnavailable);
  AwaitNext();
  EXPECT_THAT(PagesOf(*chunk), Each("---p"));
  ASSERT_TRUE(chunk->Return().ok());
  EXPECT_EQ(ReadByAll(*chunk), Zero());
}

// Nobody has noticed the end.
TEST_P(ExecutorChunkTest, RequestsToAnExecutorThatHasEndedLeaveTheChunkAway) {
  auto chunk = *device_->AllocateChunk(kBytes);
  Write(*chunk, 'a');
  Kill();
  ASSERT_TRUE(chunk->Leave().ok());
  EXPECT_EQ(chunk->Return().code(), absl::StatusCode::kUnavailable);
  AwaitNext();
  EXPECT_THAT(PagesOf(*chunk), Each("---p"));
  ASSERT_TRUE(chunk->Return().ok());
  EXPECT_EQ(ReadByAll(*chunk), Zero());
}

TEST_P(ExecutorChunkTest, ExecutorEndsWhileMemoryLeaves) {
  auto chunk = *device_->AllocateChunk(kBytes);
  Write(*chunk, 'a');
  const absl::Status left = AskAndKill([&] { return chunk->Leave(); });
  ASSERT_TRUE(left.ok()) << left;
  AwaitNext();
  EXPECT_THAT(PagesOf(*chunk), Each("---p"));
  ASSERT_TRUE(chunk->Return().ok());
  EXPECT_EQ(ReadByAll(*chunk), Zero());
}

TEST_P(ExecutorChunkTest, ExecutorEndsWhileMemoryReturns) {
  auto chunk = *device_->AllocateChunk(kBytes);
  Write(*chunk, 'a');
  ASSERT_TRUE(chunk->Leave().ok());
  EXPECT_EQ(AskAndKill([&] { return chunk->Return(); }).code(), absl::StatusCode::kUnavailable);
  AwaitNext();
  EXPECT_THAT(PagesOf(*chunk), Each("---p"));
  ASSERT_TRUE(chunk->Return().ok());
  EXPECT_EQ(ReadByAll(*chunk), Zero());
}

// The next executor has been given what was there before, and takes over later.
TEST_P(ExecutorChunkTest, MemoryLeavesWhileTheNextExecutorTakesOver) {
  auto chunk = *device_->AllocateChunk(kBytes);
  auto away = *device_->AllocateChunk(kBytes);
  auto freed = *device_->AllocateChunk(kBytes);
  Write(*chunk, 'a');
  ASSERT_TRUE(away->Leave().ok());
  const std::vector<pid_t> had = Drivers();
  Kill();
  PollUntil([&] { return Status().lost == 1; });
  // Chunks are given in the order of their addresses.
  const auto is_given = [&] {
    return std::ranges::any_of(OtherProcesses(), [&](pid_t pid) {
      return std::ranges::find(had, pid) == had.end() && PagesAt(pid, *freed) == "rw-s";
    });
  };
  while (!is_given()) std::this_thread::yield();
  ASSERT_TRUE(chunk->Leave().ok());
  std::byte* const address = freed->address();
  freed.reset();
  AwaitNext();
  EXPECT_THAT(PagesOf(*chunk), Each("---p"));
  EXPECT_THAT(PagesOf(*away), Each("---p"));
  auto other = *device_->AllocateChunk(2);
  EXPECT_EQ(other->address(), address);
  for (Chunk* const returning : {chunk.get(), away.get()}) {
    ASSERT_TRUE(returning->Return().ok());
    EXPECT_EQ(ReadByAll(*returning), Zero());
  }
}

INSTANTIATE_TEST_SUITE_P(Device, ChunkTest,
                         ::testing::Values(Driven::kInProcess, Driven::kByExecutor, Driven::kByTwoExecutors),
                         NameOf);
INSTANTIATE_TEST_SUITE_P(Device, ExecutorChunkTest,
                         ::testing::Values(Driven::kByExecutor, Driven::kByTwoExecutors), NameOf);

}  // namespace
}  // namespace xpud::executor::testing

int main(int argc, char** argv) {
  return xpud::executor::testing::RunDeviceTests(argc, argv, XPUD_DRIVER_PATH);
}
