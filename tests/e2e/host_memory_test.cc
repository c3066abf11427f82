// Host memory that clients share with the daemon: copies from and to it, its reuse, its limits, and clients
// that break the rules. With XPUD_TEST_DAEMON_FLAGS="--device cuda" on a GPU.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <functional>
#include <random>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/daemon_process.h"
#include "tests/e2e/raw_session.h"
#include "xpud/tensor.h"

namespace xpud::e2e {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using Clock = std::chrono::steady_clock;

constexpr size_t kKiB = 1 << 10, kMiB = 1 << 20;

DaemonProcess& Daemon() {
  static DaemonProcess daemon;
  return daemon;
}

bool Within(std::chrono::milliseconds limit, const std::function<bool()>& holds) {
  for (const auto end = Clock::now() + limit; Clock::now() < end;) {
    if (holds()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return holds();
}

void Scribble(std::span<std::byte> bytes, uint64_t seed) {
  std::mt19937_64 random(seed);
  for (std::byte& byte : bytes.first(std::min<size_t>(bytes.size(), 64)))
    byte = static_cast<std::byte>(random());
  for (size_t at = 64; at < bytes.size(); ++at) bytes[at] = bytes[at - 64] ^ static_cast<std::byte>(at >> 12);
}

std::vector<std::byte> Scribbled(size_t bytes, uint64_t seed) {
  std::vector<std::byte> made(bytes);
  Scribble(made, seed);
  return made;
}

bool Same(std::span<const std::byte> a, std::span<const std::byte> b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end());
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
      std::fill(source.begin(), source.end(), std::byte{0});  // it may be reused
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

// As the queue orders them, whatever their size: nothing is read early because it could be copied at once.
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

// What is freed while a command uses it must serve nobody before that has read, or written, it.
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

// How many host memories the process that drives the device has mapped.
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
      kill(getpid(), SIGKILL);
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

// ---- clients that break the rules

constexpr uint32_t kOk = 0;
constexpr auto kInvalid = static_cast<uint32_t>(absl::StatusCode::kInvalidArgument);

transport::ShareMemory Message(uint32_t id, uint64_t bytes, uint64_t devices = 1) {
  return {transport::kShareMagic, id, bytes, devices};
}

UniqueFd Memfd(uint64_t bytes, bool allocate, unsigned seals) {
  UniqueFd fd(memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  EXPECT_EQ(ftruncate(fd.get(), static_cast<off_t>(bytes)), 0);
  if (allocate) EXPECT_EQ(fallocate(fd.get(), 0, 0, static_cast<off_t>(bytes)), 0);
  EXPECT_EQ(fcntl(fd.get(), F_ADD_SEALS, seals), 0);
  return fd;
}

UniqueFd Good(uint64_t bytes = kMiB) { return *transport::CreateHostMemory(bytes); }

TEST(HostMemoryRules, BadMemoryIsRefusedInWordsAndTheSessionGoesOn) {
  constexpr unsigned kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
  RawSession raw(Daemon().socket());
  int pipes[2];
  ASSERT_EQ(pipe(pipes), 0);
  UniqueFd read_end(pipes[0]), write_end(pipes[1]), zero(open("/dev/zero", O_RDWR));
  UniqueFd file(open("/tmp", O_TMPFILE | O_RDWR, 0600));
  ASSERT_EQ(ftruncate(file.get(), kMiB), 0);
  const UniqueFd good = Good();
  const std::string path = "/proc/self/fd/" + std::to_string(good.get());
  const UniqueFd read_only(open(path.c_str(), O_RDONLY));
  const UniqueFd unsealed = Memfd(kMiB, true, 0), may_shrink = Memfd(kMiB, true, F_SEAL_GROW | F_SEAL_SEAL);
  const UniqueFd may_seal = Memfd(kMiB, true, F_SEAL_GROW | F_SEAL_SHRINK);
  const UniqueFd hollow = Memfd(kMiB, false, kSeals), fixed = Memfd(kMiB, true, kSeals | F_SEAL_WRITE);
  const std::vector<std::tuple<int, uint64_t, const char*>> bad = {
      {read_end.get(), kMiB, "no memfd"},
      {zero.get(), kMiB, "no memfd"},
      {file.get(), kMiB, ""},
      {raw.socket(), kMiB, "no memfd"},
      {unsealed.get(), kMiB, "not sealed"},
      {may_shrink.get(), kMiB, "not sealed"},
      {may_seal.get(), kMiB, "not sealed"},
      {hollow.get(), kMiB, "all its pages"},
      {good.get(), 2 * kMiB, "is said to have"},
      {good.get(), 0, "no multiple"},
      {good.get(), 100, "no multiple"},
      {good.get(), ~uint64_t{0xffff}, "is said to have"},
      {read_only.get(), kMiB, "mmap"},
      {fixed.get(), kMiB, "mmap"},
  };
  uint32_t id = 1;
  for (const auto& [fd, bytes, text] : bad) {
    ASSERT_TRUE(raw.Share(Message(id, bytes), fd));
    const transport::ShareMemoryAnswer answer = raw.Answer();
    EXPECT_EQ(answer.code, kInvalid) << answer.text;
    EXPECT_EQ(answer.id, id);
    EXPECT_THAT(answer.text, HasSubstr(text));
    ++id;
  }
  ASSERT_TRUE(raw.Share(Message(id, kMiB), good.get()));
  EXPECT_EQ(raw.Answer().code, kOk);
  EXPECT_TRUE(raw.transport().status().ok());
}

TEST(HostMemoryRules, BreachesCloseThatSessionOnly) {
  auto bystander = Daemon().Connect();
  const auto bytes_of = [](const auto& value) { return std::as_bytes(std::span(&value, 1)); };
  const UniqueFd good = Good();
  const int one[] = {good.get()}, two[] = {good.get(), good.get()};
  const auto message = Message(1, kMiB);
  auto nonsense = message;
  nonsense.magic = 1;
  const std::vector<std::function<void(RawSession&)>> breaches = {
      [&](RawSession& raw) { raw.SendMessage(bytes_of(message), {}); },
      [&](RawSession& raw) { raw.SendMessage(bytes_of(message), two); },
      [&](RawSession& raw) { raw.SendMessage(bytes_of(nonsense), one); },
      [&](RawSession& raw) { raw.SendMessage(bytes_of(message).first(23), one); },
      [&](RawSession& raw) {
        const std::array<std::byte, 4096> large{};
        raw.SendMessage(large, one);
      },
      [&](RawSession& raw) { raw.Share(Message(0, kMiB), good.get()); },
      [&](RawSession& raw) { raw.Share(Message(1, kMiB, 0), good.get()); },
      [&](RawSession& raw) { raw.Share(Message(1, kMiB, uint64_t{1} << 63), good.get()); },
      [&](RawSession& raw) {
        raw.Share(message, good.get());
        raw.Share(message, good.get());
        EXPECT_EQ(raw.Answer().code, kOk);
      },
  };
  size_t number = 0;
  for (const auto& breach : breaches) {
    RawSession raw(Daemon().socket());
    breach(raw);
    EXPECT_THAT(raw.Fate(), AnyOf(HasSubstr("closed this session"), HasSubstr("died"))) << number++;
  }
  EXPECT_TRUE(bystander->DefaultQueue(0).Synchronize().ok());
}

TEST(HostMemoryRules, CommandsThatNameMemoryWronglyAreBreaches) {
  using wire::CommandKind;
  const auto upload = [](wire::HostPlace place, uint64_t bytes) {
    return wire::UploadCommand{HeaderOf<wire::UploadCommand>(CommandKind::kUpload), {1, 1}, 0, place, bytes};
  };
  const auto release = [](uint32_t id) {
    return wire::ReleaseMemoryCommand{HeaderOf<wire::ReleaseMemoryCommand>(CommandKind::kReleaseMemory), id,
                                      0};
  };
  const std::vector<std::pair<std::function<void(RawSession&)>, const char*>> breaches = {
      {[&](RawSession& raw) { raw.Send(upload({0, 2, 0}, 64)); }, "not shared"},
      {[&](RawSession& raw) { raw.Send(upload({kMiB, 1, 0}, 1)); }, "leaves its host memory"},
      {[&](RawSession& raw) { raw.Send(upload({~uint64_t{0}, 1, 0}, 2)); }, "leaves its host memory"},
      {[&](RawSession& raw) { raw.Send(upload({1, 1, 0}, ~uint64_t{0})); }, "leaves its host memory"},
      {[&](RawSession& raw) { raw.Send(upload({1, 0, 0}, ~uint64_t{0})); }, "leaves the staging memory"},
      {[&](RawSession& raw) { raw.Send(release(0)); }, "released that is not shared"},
      {[&](RawSession& raw) { raw.Send(release(7)); }, "released that is not shared"},
      {[&](RawSession& raw) { raw.Send(release(1)), raw.Send(release(1)); }, "released that is not shared"},
      {[&](RawSession& raw) { raw.Send(release(1)), raw.Send(upload({0, 1, 0}, 64)); }, "not shared"},
  };
  for (const auto& [breach, reason] : breaches) {
    RawSession raw(Daemon().socket());
    const UniqueFd good = Good();
    raw.Share(Message(1, kMiB), good.get());
    ASSERT_EQ(raw.Answer().code, kOk);
    breach(raw);
    EXPECT_THAT(raw.Fate(), HasSubstr(reason));
  }
}

TEST(HostMemoryRules, AFloodIsAnsweredInTurnAndHurtsNobody) {
  DaemonProcess daemon;
  auto bystander = daemon.Connect();
  const size_t files = daemon.OpenFileCount();
  {
    RawSession raw(daemon.socket());
    const UniqueFd hollow = Memfd(kMiB, false, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL), good = Good();
    size_t accepted = 0, limited = 0;
    for (uint32_t from = 1; from < 3000; from += 100) {
      for (uint32_t id = from; id < from + 100; ++id)
        raw.Share(Message(id, kMiB), (id % 2 ? hollow : good).get());
      for (uint32_t id = from; id < from + 100; ++id) {
        const transport::ShareMemoryAnswer answer = raw.Answer();
        ASSERT_EQ(answer.id, id);
        accepted += answer.code == kOk;
        limited += answer.code == static_cast<uint32_t>(absl::StatusCode::kResourceExhausted);
      }
    }
    EXPECT_EQ(accepted, transport::kMostHostMemories);
    EXPECT_EQ(limited, 1500 - transport::kMostHostMemories);
    const std::vector<float> values(16, 2);
    const auto tensor = Tensor::FromHost(bystander->DefaultQueue(0), std::span<const float>(values), {16});
    EXPECT_EQ((*Mul(*tensor, 2.0)->ToFloats())[3], 4);
  }
  EXPECT_TRUE(Within(std::chrono::seconds(5), [&] { return daemon.OpenFileCount() <= files + 1; }));
}

TEST(HostMemoryRules, AClientThatReadsNoAnswersIsClosed) {
  DaemonProcess daemon;
  auto bystander = daemon.Connect();
  RawSession raw(daemon.socket());
  const UniqueFd hollow = Memfd(kMiB, false, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
  const auto message = Message(1, kMiB);
  const int fd = hollow.get();
  const timeval limit = {0, 200'000};
  setsockopt(raw.socket(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
  for (int i = 0; i < 3000; ++i) {
    if (!raw.SendMessage(std::as_bytes(std::span(&message, 1)), {&fd, 1})) break;
  }
  EXPECT_FALSE(raw.Fate().empty());
  EXPECT_TRUE(bystander->AllocateHost(kMiB).ok());
}

// In the ring's order, and not before queues have done what they had been given.
TEST(HostMemoryRules, ReleasedMemoryServesTheCommandsBefore) {
  using wire::CommandKind;
  constexpr uint64_t kBytes = 64 * kMiB;
  RawSession raw(Daemon().socket());
  UniqueFd fd = Good(kBytes);
  const auto mapping = *Mapping::Map(fd, kBytes, Access::kReadWrite);
  const std::span<std::byte> bytes(mapping.data(), kBytes);
  Scribble(bytes, 11);
  ASSERT_TRUE(raw.Share(Message(5, kBytes), fd.get()));
  ASSERT_EQ(raw.Answer().code, kOk);
  const UniqueFd back_fd = Good(kBytes);
  const auto back = *Mapping::Map(back_fd, kBytes, Access::kReadWrite);
  ASSERT_TRUE(raw.Share(Message(6, kBytes), back_fd.get()));
  ASSERT_EQ(raw.Answer().code, kOk);
  raw.Send(wire::AllocateCommand{HeaderOf<wire::AllocateCommand>(CommandKind::kAllocate), {1, 1}, kBytes});
  raw.Send(
      wire::UploadCommand{HeaderOf<wire::UploadCommand>(CommandKind::kUpload), {1, 1}, 0, {0, 5, 0}, kBytes});
  raw.Send(
      wire::ReleaseMemoryCommand{HeaderOf<wire::ReleaseMemoryCommand>(CommandKind::kReleaseMemory), 5, 0});
  raw.Send(wire::DownloadCommand{
      HeaderOf<wire::DownloadCommand>(CommandKind::kDownload), {1, 1}, 0, {0, 6, 0}, kBytes});
  raw.Send(
      wire::ReleaseMemoryCommand{HeaderOf<wire::ReleaseMemoryCommand>(CommandKind::kReleaseMemory), 6, 0});
  ASSERT_TRUE(raw.Synchronize().ok());
  EXPECT_TRUE(Same(bytes, {back.data(), kBytes}));
  ASSERT_TRUE(raw.Share(Message(5, kBytes), fd.get())) << "the id is free";
  EXPECT_EQ(raw.Answer().code, kOk);
}

}  // namespace
}  // namespace xpud::e2e
