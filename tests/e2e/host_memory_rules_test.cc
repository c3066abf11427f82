// Clients that break the rules for sharing host memory.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/daemon_process.h"
#include "tests/e2e/raw_session.h"
#include "tests/e2e/scribble.h"
#include "xpud/tensor.h"

namespace xpud::e2e {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

constexpr size_t kMiB = 1 << 20;

DaemonProcess& Daemon() {
  static DaemonProcess daemon;
  return daemon;
}

constexpr uint32_t kOk = 0;
constexpr auto kInvalid = static_cast<uint32_t>(absl::StatusCode::kInvalidArgument);

transport::Request Message(uint32_t id, uint64_t bytes, uint64_t devices = 1) {
  return {transport::RequestKind::kShareMemory, id, bytes, devices};
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
  constexpr unsigned kSeals = F_SEAL_SHRINK | F_SEAL_GROW;
  RawSession raw(Daemon().socket());
  int pipes[2];
  ASSERT_EQ(pipe(pipes), 0);
  UniqueFd read_end(pipes[0]), write_end(pipes[1]), zero(open("/dev/zero", O_RDWR));
  UniqueFd file(open("/tmp", O_TMPFILE | O_RDWR, 0600));
  ASSERT_EQ(ftruncate(file.get(), kMiB), 0);
  const UniqueFd good = Good();
  const std::string path = "/proc/self/fd/" + std::to_string(good.get());
  const UniqueFd read_only(open(path.c_str(), O_RDONLY));
  const UniqueFd unsealed = Memfd(kMiB, true, 0), may_shrink = Memfd(kMiB, true, F_SEAL_GROW);
  const UniqueFd cannot_be_sealed = Memfd(kMiB, true, kSeals | F_SEAL_SEAL);
  const UniqueFd hollow = Memfd(kMiB, false, kSeals), fixed = Memfd(kMiB, true, kSeals | F_SEAL_WRITE);
  const std::vector<std::tuple<int, uint64_t, const char*>> bad = {
      {read_end.get(), kMiB, "not a memfd"},
      {zero.get(), kMiB, "not a memfd"},
      {file.get(), kMiB, ""},
      {raw.socket(), kMiB, "not a memfd"},
      {unsealed.get(), kMiB, "not sealed"},
      {may_shrink.get(), kMiB, "not sealed"},
      {cannot_be_sealed.get(), kMiB, "not sealed"},
      {hollow.get(), kMiB, "some of its pages"},
      {good.get(), 2 * kMiB, "fewer than the"},
      {good.get(), 0, "not a multiple"},
      {good.get(), 100, "not a multiple"},
      {good.get(), ~uint64_t{0xffff}, "fewer than the"},
      {read_only.get(), kMiB, "mmap"},
      {fixed.get(), kMiB, "mmap"},
  };
  uint32_t id = 1;
  for (const auto& [fd, bytes, text] : bad) {
    ASSERT_TRUE(raw.Share(Message(id, bytes), fd));
    const transport::Answer answer = raw.Answer();
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
  nonsense.kind = transport::RequestKind{1};
  const std::vector<std::function<void(RawSession&)>> breaches = {
      [&](RawSession& raw) { raw.SendMessage(bytes_of(message), {}); },
      [&](RawSession& raw) { raw.SendMessage(bytes_of(message), two); },
      [&](RawSession& raw) {
        const transport::Request open = {transport::RequestKind::kOpenDevice, 16, 0, 0};
        raw.SendMessage(bytes_of(open), {});
      },
      [&](RawSession& raw) {
        const transport::Request open = {transport::RequestKind::kOpenDevice, 0, 0, 0};
        raw.SendMessage(bytes_of(open), one);
      },
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
        raw.Share(message, Good().get());
        raw.Share(message, Good().get());
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
  ASSERT_TRUE(bystander->DefaultQueue(0).Allocate(8).ok());  // opens the device
  const size_t files = daemon.OpenFileCount();
  {
    RawSession raw(daemon.socket());
    const UniqueFd hollow = Memfd(kMiB, false, F_SEAL_SHRINK | F_SEAL_GROW);
    size_t accepted = 0, limited = 0;
    for (uint32_t from = 1; from < 3000; from += 100) {
      for (uint32_t id = from; id < from + 100; ++id)
        raw.Share(Message(id, kMiB), (id % 2 ? UniqueFd(dup(hollow.get())) : Good()).get());
      for (uint32_t id = from; id < from + 100; ++id) {
        const transport::Answer answer = raw.Answer();
        ASSERT_EQ(answer.id, id);
        accepted += answer.code == kOk;
        limited += answer.code == static_cast<uint32_t>(absl::StatusCode::kResourceExhausted);
      }
    }
    EXPECT_EQ(accepted, transport::kMaxHostMemories);
    EXPECT_EQ(limited, 1500 - transport::kMaxHostMemories);
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
  const UniqueFd hollow = Memfd(kMiB, false, F_SEAL_SHRINK | F_SEAL_GROW);
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

// Release happens in the ring's order, and not before queues have finished their earlier work.
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
  ASSERT_TRUE(raw.Share(Message(5, kBytes), Good(kBytes).get())) << "the id is free";
  EXPECT_EQ(raw.Answer().code, kOk);
}

}  // namespace
}  // namespace xpud::e2e
