// Chunks of the CPU device, driven in this process and in a process of its own, which is this program again.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "daemon/executor/api/address_space.h"
#include "daemon/executor/api/device_queue.h"
#include "daemon/executor/devices.h"
#include "daemon/executor/process/executor_main.h"

namespace xpud::executor {
namespace {

constexpr uint64_t kBytes = AddressSpace::kChunkUnit;
constexpr size_t kPart = 4096;  // that is written and read
constexpr int kProcessTests = 4;

// One for each test with a process: a device closes its spawner, and none can be started beside threads.
std::vector<std::unique_ptr<process::Spawner>>& Spawners() {
  static auto& spawners = *new std::vector<std::unique_ptr<process::Spawner>>;
  return spawners;
}

class ChunkTest : public ::testing::TestWithParam<ExecutorKind> {
 protected:
  void SetUp() override {
    auto plan = PlanDevices(XPUD_DRIVER_PATH, "cpu", GetParam());
    ASSERT_TRUE(plan.ok()) << plan.status();
    DevicesOptions options;
    options.plan = *std::move(plan);
    options.driver_library = XPUD_DRIVER_PATH;
    options.device = "cpu";
    options.wake = [] {};
    if (!InProcess()) {
      ASSERT_FALSE(Spawners().empty()) << "kProcessTests is too small";
      spawner_ = std::move(Spawners().back());
      Spawners().pop_back();
    }
    options.spawner = spawner_.get();
    auto devices = OpenDevices(options);
    ASSERT_TRUE(devices.ok()) << devices.status();
    device_ = std::move(devices->front());
    host_ = *device_->AllocateHost(2 * kPart);
    queue_ = *device_->CreateQueue(PriorityClass::kInteractive, 1);
    queue_->Watch(reinterpret_cast<uint64_t*>(host_->address() + kPart));
  }
  bool InProcess() const { return GetParam() == ExecutorKind::kThread; }

  // Waits for the queue's work.
  void Finish() {
    auto* const word = reinterpret_cast<uint64_t*>(host_->address() + kPart);
    ASSERT_TRUE(queue_->WriteValue(host_->OnDevice(word), ++value_).ok());
    PollUntil([&] { return std::atomic_ref<uint64_t>(*word).load() == value_; });
    queue_->Completed(value_);  // so the next executor does not run it again
  }
  template <typename Reached>
  void PollUntil(Reached&& reached) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!reached()) {
      device_->Poll();
      ASSERT_LT(std::chrono::steady_clock::now(), deadline);
    }
  }
  std::string Read(const Chunk& chunk) {
    EXPECT_TRUE(queue_->Copy(host_->OnDevice(host_->address()), chunk.address(), kPart).ok());
    Finish();
    return std::string(reinterpret_cast<const char*>(host_->address()), kPart);
  }
  void Write(const Chunk& chunk, char value) {
    const std::string bytes(kPart, value);
    EXPECT_TRUE(queue_->Upload(chunk.address(), std::as_bytes(std::span(bytes))).ok());
    Finish();
  }
  // The permissions of the first page in the process that drives the device; "" if nothing is there.
  std::string PagesAt(const Chunk& chunk) {
    const int pid = InProcess() ? getpid() : device_->executor(ExecutorRole::kAll).pid;
    std::ifstream maps(absl::StrCat("/proc/", pid, "/maps"));
    const auto address = reinterpret_cast<uint64_t>(chunk.address());
    for (std::string line; std::getline(maps, line);) {
      uint64_t begin = 0, end = 0;
      char dash = 0;
      std::string permissions;
      std::istringstream(line) >> std::hex >> begin >> dash >> end >> permissions;
      if (begin <= address && address < end) return permissions;
    }
    return "";
  }

  std::unique_ptr<process::Spawner> spawner_;  // first, so that it is destroyed last
  std::unique_ptr<Device> device_;
  std::unique_ptr<HostMemory> host_;
  std::unique_ptr<DeviceQueue> queue_;
  uint64_t value_ = 0;
};

TEST_P(ChunkTest, MemoryThatLeavesKeepsItsAddressesAndReturnsZeroed) {
  auto chunk = *device_->AllocateChunk(kBytes);
  auto other = *device_->AllocateChunk(kBytes);
  std::byte* const address = chunk->address();
  EXPECT_EQ(PagesAt(*chunk), "rw-s");
  Write(*chunk, 'a');
  Write(*other, 'b');
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(chunk->Leave().ok());
    EXPECT_TRUE(chunk->Leave().ok()) << "it is away";
    EXPECT_EQ(PagesAt(*chunk), "---p") << "reserved";
    auto meanwhile = *device_->AllocateChunk(kBytes);
    EXPECT_NE(meanwhile->address(), address);
    const absl::Status returned = chunk->Return();
    ASSERT_TRUE(returned.ok()) << returned;
    EXPECT_EQ(chunk->address(), address);
    EXPECT_EQ(Read(*chunk), std::string(kPart, '\0'));
    Write(*chunk, 'c');
    EXPECT_EQ(Read(*chunk), std::string(kPart, 'c'));
  }
  EXPECT_EQ(Read(*other), std::string(kPart, 'b'));
  ASSERT_TRUE(chunk->Leave().ok());
  chunk.reset();  // while it is away
  EXPECT_EQ(device_->AllocateChunk(kBytes).value()->address(), address) << "its addresses are free";
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
  EXPECT_EQ(Read(*chunk), std::string(kPart, '\0'));
}

// Chunks that are there keep their contents; those that are away keep their addresses.
TEST_P(ChunkTest, NextExecutorHasWhatIsThereAndTheAddressesOfWhatIsAway) {
  if (InProcess()) GTEST_SKIP() << "this process cannot be replaced";
  auto there = *device_->AllocateChunk(kBytes);
  auto away = *device_->AllocateChunk(kBytes);
  auto back = *device_->AllocateChunk(kBytes);
  Write(*there, 'a');
  Write(*away, 'b');
  ASSERT_TRUE(away->Leave().ok());
  ASSERT_TRUE(back->Leave().ok());
  ASSERT_TRUE(back->Return().ok());
  Write(*back, 'c');
  ASSERT_EQ(kill(device_->executor(ExecutorRole::kAll).pid, SIGKILL), 0);
  PollUntil([&] { return device_->executor(ExecutorRole::kAll).replaced == 1; });
  EXPECT_EQ(PagesAt(*there), "rw-s");
  EXPECT_EQ(PagesAt(*away), "---p");
  EXPECT_EQ(Read(*there), std::string(kPart, 'a'));
  EXPECT_EQ(Read(*back), std::string(kPart, 'c'));
  const absl::Status returned = away->Return();
  ASSERT_TRUE(returned.ok()) << returned;
  EXPECT_EQ(Read(*away), std::string(kPart, '\0'));
}

// What leaves or returns while there is no executor.
TEST_P(ChunkTest, MemoryLeavesWithoutAnExecutorAndReturnsToTheNextOne) {
  if (InProcess()) GTEST_SKIP() << "this process cannot be replaced";
  auto chunk = *device_->AllocateChunk(kBytes);
  Write(*chunk, 'a');
  ASSERT_EQ(kill(device_->executor(ExecutorRole::kAll).pid, SIGKILL), 0);
  PollUntil([&] { return device_->executor(ExecutorRole::kAll).lost == 1; });
  ASSERT_TRUE(chunk->Leave().ok());
  EXPECT_EQ(chunk->Return().code(), absl::StatusCode::kUnavailable);
  PollUntil([&] { return device_->executor(ExecutorRole::kAll).replaced == 1; });
  EXPECT_EQ(PagesAt(*chunk), "---p");
  ASSERT_TRUE(chunk->Return().ok());
  EXPECT_EQ(Read(*chunk), std::string(kPart, '\0'));
}

INSTANTIATE_TEST_SUITE_P(On, ChunkTest, ::testing::Values(ExecutorKind::kProcess, ExecutorKind::kThread),
                         [](const ::testing::TestParamInfo<ExecutorKind>& info) {
                           return info.param == ExecutorKind::kThread ? "Thread" : "Process";
                         });

}  // namespace
}  // namespace xpud::executor

int main(int argc, char** argv) {
  namespace process = xpud::executor::process;
  if (const auto serve = process::ServeArguments::FromArgv({argv, static_cast<size_t>(argc)}))
    process::ServeDevice(*serve);
  for (int i = 0; i < xpud::executor::kProcessTests; ++i) {
    auto started = process::Spawner::Start({.driver_library = XPUD_DRIVER_PATH, .confine = ""}, [] {});
    if (!started.ok()) return 1;
    xpud::executor::Spawners().push_back(*std::move(started));
  }
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
