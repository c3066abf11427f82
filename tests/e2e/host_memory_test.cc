// Host memory that clients share with the daemon: copies from and to it, reuse and limits. With
// XPUD_TEST_DAEMON_FLAGS="--device cuda" on a GPU.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <functional>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/daemon_process.h"
#include "tests/e2e/scribble.h"
#include "xpud/tensor.h"

namespace xpud::e2e {
namespace {

using ::testing::HasSubstr;
using Clock = std::chrono::steady_clock;

constexpr size_t kKiB = 1 << 10, kMiB = 1 << 20;

DaemonProcess& Daemon() {
  static DaemonProcess daemon;
  return daemon;
}

class HostMemory : public ::testing::Test {
 protected:
  std::unique_ptr<Session> session_ = Daemon().Connect();
  Queue queue_ = session_->DefaultQueue(0);
  HostBuffer Allocate(size_t bytes) {
    auto buffer = session_->AllocateHost(bytes);
    EXPECT_TRUE(buffer.ok()) << buffer.status();
    return *std::move(buffer);
  }
  Buffer OnDevice(size_t bytes) { return *queue_.Allocate(bytes); }
  // Keeps the queue busy for a while.
  void Occupy() {
    const std::vector<float> ones(kMiB, 1);
    Tensor x = *Tensor::FromHost(queue_, std::span<const float>(ones), {static_cast<int64_t>(ones.size())});
    for (int i = 0; i < 60; ++i) x = *Mul(x, 1.0);
  }
};

TEST_F(HostMemory, CopiesOfAnySizeAndPlaceArriveWhole) {
  const HostBuffer host = Allocate(40 * kMiB);
  for (const size_t bytes : {size_t{1}, size_t{2049}, 64 * kKiB + 1, 5 * kMiB, 33 * kMiB + 7}) {
    for (const size_t offset : {size_t{0}, size_t{4095}, 3 * kMiB + 1}) {
      const std::span<std::byte> source = host.bytes().subspan(offset, bytes);
      Scribble(source, bytes + offset);
      const std::vector<std::byte> expected(source.begin(), source.end());
      const Buffer buffer = OnDevice(bytes + 8);
      ASSERT_TRUE(queue_.Upload(source, buffer.handle(), 8).ok());
      std::fill(source.begin(), source.end(), std::byte{0});  // the source may be changed now
      std::vector<std::byte> ordinary(bytes);
      ASSERT_TRUE(queue_.Download(buffer.handle(), 8, ordinary).ok());
      EXPECT_TRUE(Same(ordinary, expected)) << bytes << " at " << offset;
      ASSERT_TRUE(queue_.Download(buffer.handle(), 8, source).ok());
      EXPECT_TRUE(Same(source, expected)) << bytes << " at " << offset;
    }
  }
}

TEST_F(HostMemory, StartedCopiesAreThereWhenAnEventSaysSo) {
  const HostBuffer source = Allocate(24 * kMiB), target = Allocate(24 * kMiB);
  Scribble(source.bytes(), 3);
  const Buffer buffer = OnDevice(24 * kMiB);
  Occupy();
  ASSERT_TRUE(queue_.StartUpload(source.bytes(), buffer.handle(), 0).ok());
  ASSERT_TRUE(queue_.StartDownload(buffer.handle(), 0, target.bytes()).ok());
  const Event event = *queue_.Record();
  ASSERT_TRUE(event.Synchronize().ok());
  EXPECT_TRUE(Same(source.bytes(), target.bytes()));
}

TEST_F(HostMemory, OtherQueuesUseItToo) {
  Queue second = *session_->CreateQueue(0);
  const HostBuffer source = Allocate(kMiB), target = Allocate(kMiB);
  Scribble(source.bytes(), 4);
  const Buffer buffer = OnDevice(kMiB);
  ASSERT_TRUE(queue_.StartUpload(source.bytes(), buffer.handle(), 0).ok());
  ASSERT_TRUE(second.Wait(*queue_.Record()).ok());
  ASSERT_TRUE(second.StartDownload(buffer.handle(), 0, target.bytes()).ok());
  ASSERT_TRUE(second.Synchronize().ok());
  EXPECT_TRUE(Same(source.bytes(), target.bytes()));
  EXPECT_TRUE(session_->DestroyQueue(second).ok());
}

// The queue's order holds for all sizes: nothing is read early because it could be copied at once.
TEST_F(HostMemory, AnUploadReadsWhatADownloadBeforeItWrites) {
  for (const size_t bytes : {size_t{1000}, 32 * kKiB, 2 * kMiB}) {
    const HostBuffer host = Allocate(bytes);
    const Buffer from = OnDevice(bytes), blocking = OnDevice(bytes), started = OnDevice(bytes);
    ASSERT_TRUE(queue_.Upload(Scribbled(bytes, bytes), from.handle(), 0).ok());
    std::fill(host.bytes().begin(), host.bytes().end(), std::byte{0});
    Occupy();
    ASSERT_TRUE(queue_.StartDownload(from.handle(), 0, host.bytes()).ok());
    ASSERT_TRUE(queue_.StartUpload(host.bytes(), started.handle(), 0).ok());
    ASSERT_TRUE(queue_.Upload(host.bytes(), blocking.handle(), 0).ok());
    for (const Buffer* buffer : {&started, &blocking}) {
      std::vector<std::byte> back(bytes);
      ASSERT_TRUE(queue_.Download(buffer->handle(), 0, back).ok());
      EXPECT_TRUE(Same(back, Scribbled(bytes, bytes))) << bytes;
    }
  }
}

// Memory that is freed while a command uses it must not be reused until the command has finished.
TEST_F(HostMemory, ABlockIsNotReusedWhileACommandUsesIt) {
  constexpr size_t kBytes = 300 * kKiB;
  std::vector<Buffer> buffers;
  for (uint64_t i = 0; i < 60; ++i) {
    if (i % 10 == 0) Occupy();
    HostBuffer source = Allocate(kBytes);
    Scribble(source.bytes(), i);
    buffers.push_back(OnDevice(kBytes));
    ASSERT_TRUE(queue_.StartUpload(source.bytes(), buffers.back().handle(), 0).ok());
  }
  for (uint64_t i = 0; i < 60; ++i) {
    std::vector<std::byte> back(kBytes);
    ASSERT_TRUE(queue_.Download(buffers[i].handle(), 0, back).ok());
    EXPECT_TRUE(Same(back, Scribbled(kBytes, i))) << i;
  }
  Occupy();
  for (const Buffer& buffer : buffers) {
    HostBuffer target = Allocate(kBytes);
    ASSERT_TRUE(queue_.StartDownload(buffer.handle(), 0, target.bytes()).ok());
  }
  std::vector<HostBuffer> mine;
  for (uint64_t i = 0; i < 60; ++i) {
    mine.push_back(Allocate(kBytes));
    Scribble(mine.back().bytes(), 1000 + i);
  }
  ASSERT_TRUE(queue_.Synchronize().ok());
  for (uint64_t i = 0; i < 60; ++i) EXPECT_TRUE(Same(mine[i].bytes(), Scribbled(kBytes, 1000 + i))) << i;
}

TEST_F(HostMemory, FreedMemoryIsReused) {
  const std::byte* const first = Allocate(3 * kMiB).bytes().data();
  EXPECT_EQ(Allocate(3 * kMiB).bytes().data(), first);
  EXPECT_TRUE(Allocate(0).bytes().empty());
}

TEST_F(HostMemory, AnAddressIsKnownWhileItsBufferLives) {
  HostBuffer host = Allocate(10 * kKiB);
  const std::byte* const begin = host.bytes().data();
  EXPECT_TRUE(session_->IsHostMemory(begin));
  EXPECT_TRUE(session_->IsHostMemory(begin + 10 * kKiB - 1));
  const int ordinary = 0;
  EXPECT_FALSE(session_->IsHostMemory(&ordinary));
  EXPECT_FALSE(session_->IsHostMemory(nullptr));
  host.Free();
  EXPECT_FALSE(session_->IsHostMemory(begin));
}

TEST_F(HostMemory, ManyBuffersTakeFewMemories) {
  std::vector<HostBuffer> buffers;
  for (int i = 0; i < 200; ++i) {
    buffers.push_back(Allocate(1500 * kKiB));
    Scribble(buffers.back().bytes().first(64), static_cast<uint64_t>(i));
  }
  for (int i = 0; i < 200; ++i)
    EXPECT_TRUE(
        Same(buffers[static_cast<size_t>(i)].bytes().first(64), Scribbled(64, static_cast<uint64_t>(i))));
}

TEST_F(HostMemory, ThreadsShareOneSession) {
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (uint64_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (uint64_t i = 0; i < 40; ++i) {
        const size_t bytes = 4 * kKiB << (i % 8);
        HostBuffer source = *session_->AllocateHost(bytes), target = *session_->AllocateHost(bytes);
        Scribble(source.bytes(), 100 * t + i);
        const Buffer buffer = *queue_.Allocate(bytes);
        const bool ok = queue_.StartUpload(source.bytes(), buffer.handle(), 0).ok();
        source.Free();
        wrong += !ok || !queue_.Download(buffer.handle(), 0, target.bytes()).ok() ||
                 !Same(target.bytes(), Scribbled(bytes, 100 * t + i));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST_F(HostMemory, ACopyThatLeavesItsTargetIsRefusedAndTheSessionGoesOn) {
  const HostBuffer host = Allocate(kMiB);
  const Buffer buffer = OnDevice(kMiB / 2);
  ASSERT_TRUE(queue_.StartUpload(host.bytes(), buffer.handle(), 0).ok());
  EXPECT_THAT(queue_.Synchronize().message(), HasSubstr("leaves its buffer"));
  EXPECT_TRUE(queue_.Upload(host.bytes().first(kMiB / 2), buffer.handle(), 0).ok());
  EXPECT_TRUE(queue_.Synchronize().ok());
}

TEST_F(HostMemory, AForkedChildIsToldThatItIsItsParents) {
  const HostBuffer host = Allocate(kMiB);
  const int child = fork();
  if (child == 0) {
    const bool refused = absl::IsFailedPrecondition(session_->AllocateHost(kMiB).status());
    auto own = Daemon().Connect("child");
    HostBuffer mine = *own->AllocateHost(kMiB);
    const Buffer buffer = *own->DefaultQueue(0).Allocate(kMiB);
    const bool works = own->DefaultQueue(0).Upload(mine.bytes(), buffer.handle(), 0).ok();
    _exit(refused && works && !session_->IsHostMemory(host.bytes().data()) ? 0 : 1);
  }
  int result;
  waitpid(child, &result, 0);
  EXPECT_EQ(result, 0);
  Scribble(host.bytes(), 1);
}

TEST(HostMemoryLimit, WhatIsBeyondTheLimitIsRefusedAndFreedMemoryCounts) {
  DaemonProcess daemon({"--host-memory-limit", "40"});
  auto session = daemon.Connect();
  auto first = session->AllocateHost(20 * kMiB);
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(daemon.StatusOf("host_memory_bytes"), 20 * kMiB);
  const absl::Status refused = session->AllocateHost(30 * kMiB).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted) << refused;
  EXPECT_THAT(refused.message(), HasSubstr("can share 40 MiB of host memory; 20 MiB are shared"));
  first->Free();
  auto instead = session->AllocateHost(30 * kMiB);
  ASSERT_TRUE(instead.ok()) << instead.status();
  EXPECT_TRUE(session->AllocateHost(7 * kMiB).ok()) << "less than memory usually grows by";
  EXPECT_TRUE(daemon.Connect()->AllocateHost(40 * kMiB).ok()) << "each session has a limit of its own";
}

// Returns how many host memories the process that drives the device has mapped.
int MappedMemories(const DaemonProcess& daemon) {
  const int64_t executor = daemon.StatusOf("executor_pid");
  std::ifstream maps("/proc/" + std::to_string(executor > 0 ? executor : daemon.pid()) + "/maps");
  int count = 0;
  for (std::string line; std::getline(maps, line);)
    count += line.find("memfd:xpud-host") != std::string::npos;
  return count;
}

TEST(HostMemoryLimit, ASessionThatDiesWithItLeavesNothingBehind) {
  DaemonProcess daemon;
  {
    auto session = daemon.Connect();
    ASSERT_TRUE(session->AllocateHost(kMiB).ok());
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  const size_t files = daemon.OpenFileCount();
  for (int i = 0; i < 8; ++i) {
    const int child = fork();
    if (child == 0) {
      auto session = daemon.Connect("victim");
      const Queue queue = session->DefaultQueue(0);
      const HostBuffer host = *session->AllocateHost(32 * kMiB);
      const Buffer buffer = *queue.Allocate(32 * kMiB);
      for (int k = 0; k < 20; ++k) (void)queue.StartUpload(host.bytes(), buffer.handle(), 0);
      raise(SIGKILL);
    }
    waitpid(child, nullptr, 0);
  }
  EXPECT_TRUE(Within(std::chrono::seconds(5), [&] { return daemon.OpenFileCount() <= files + 1; }))
      << daemon.OpenFileCount() << " against " << files;
  EXPECT_TRUE(Within(std::chrono::seconds(5), [&] { return daemon.StatusOf("memory_used_bytes") == 0; }));
  EXPECT_TRUE(Within(std::chrono::seconds(5), [&] { return MappedMemories(daemon) == 0; }));
  auto session = daemon.Connect();
  const HostBuffer host = *session->AllocateHost(kMiB);
  EXPECT_EQ(MappedMemories(daemon), 1);
}

}  // namespace
}  // namespace xpud::e2e
