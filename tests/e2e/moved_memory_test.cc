// Tenants that have more memory together than their device: what leaves it, what returns, who waits. Real
// daemons, whose devices say that they have little memory.
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "sdk/client/connect.h"
#include "sdk/control/client.h"
#include "tests/e2e/daemon_process.h"
#include "tests/e2e/floats.h"
#include "xpud/xpud.h"

namespace xpud::e2e {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr uint64_t kMiB = 1 << 20;
constexpr uint64_t kBlockBytes = 15 * kMiB;  // in a chunk of 16 MiB
constexpr int64_t kCount = kBlockBytes / sizeof(float);

template <typename T>
bool IsAll(const std::vector<T>& values, T value) {
  return std::ranges::all_of(values, [&](T each) { return each == value; });
}

class MovedMemoryTest : public ::testing::Test {
 protected:
  // A program with a claim of its own.
  class Program {
   public:
    Program(const DaemonProcess& daemon, const std::string& key, uint64_t least = 0, uint64_t most = 0) {
      v1::Claim claim;
      claim.set_key(key);
      claim.set_memory_least_bytes(least);
      if (most != 0) claim.set_memory_most_bytes(most);
      const auto created = control::Client::Connect(daemon.socket())->CreateClaim(claim);
      EXPECT_TRUE(created.ok()) << created.status();
      ConnectOptions options;
      options.address = daemon.directory() + "/claims/" + key + "/xpud.sock";
      options.start_daemon = false;
      auto session = Session::Connect(options);
      EXPECT_TRUE(session.ok()) << session.status();
      if (session.ok()) session_ = *std::move(session);
    }
    absl::Status Allocate(int blocks) {
      for (int i = 0; i < blocks; ++i) {
        auto buffer = queue().Allocate(kBlockBytes);
        if (!buffer.ok()) return buffer.status();
        buffers_.push_back(*std::move(buffer));
        values_.push_back(static_cast<float>(buffers_.size()));
        const std::vector<float> values(kCount, values_.back());
        absl::Status filled = queue().Upload(std::as_bytes(std::span(values)), buffers_.back().handle(), 0);
        if (!filled.ok()) return filled;
      }
      return queue().Synchronize();
    }
    // Adds 1 to each number of a block, on the device.
    void Add(size_t i) {
      const absl::Status added = ExecuteInPlace(queue(), buffers_[i], "add.Tensor", {1, 1});
      ASSERT_TRUE(added.ok()) << added;
      values_[i] += 1;
    }
    void ExpectRight(size_t i) {
      std::vector<float> values(kCount);
      const absl::Status read =
          queue().Download(buffers_[i].handle(), 0, std::as_writable_bytes(std::span(values)));
      ASSERT_TRUE(read.ok()) << read;
      ASSERT_TRUE(IsAll(values, values_[i])) << "block " << i;
    }
    void ExpectAllRight() {
      for (size_t i = 0; i < buffers_.size(); ++i) ExpectRight(i);
    }
    Queue queue() const { return session_->DefaultQueue(0); }
    size_t blocks() const { return buffers_.size(); }
    Session& session() { return *session_; }

   private:
    std::unique_ptr<Session> session_;
    std::vector<Buffer> buffers_;
    std::vector<float> values_;
  };

  void SetUp() override {
    if (std::getenv("XPUD_TEST_REMOTE") != nullptr) GTEST_SKIP() << "claims' doors are of this machine";
    if (std::getenv("XPUD_CPU_PLAIN") != nullptr) GTEST_SKIP() << "a driver without virtual memory";
    Start("1GiB");
  }
  void TearDown() override {
    daemon_.reset();
    if (!folder_.empty()) std::filesystem::remove(folder_);
  }
  void Start(const std::string& move_out, const std::vector<std::string>& more = {}) {
    std::vector<std::string> arguments = {"--test-device-memory", "128MiB", "--move-out", move_out,
                                          "--log-level",          "info"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    daemon_ = std::make_unique<DaemonProcess>(arguments);
  }
  // Little host memory, and a file beyond it.
  void StartWithFile(const std::string& bytes) {
    folder_ = "/tmp/xpud-moved-out-XXXXXX";
    ASSERT_NE(mkdtemp(folder_.data()), nullptr);
    Start("128MiB", {"--move-out-folder", folder_, "--move-out-files", bytes});
  }
  v1::DeviceMemory Device() const {
    const auto answer = control::Client::Connect(daemon_->socket())->ListMemory();
    return answer.ok() && answer->devices_size() > 0 ? answer->devices(0) : v1::DeviceMemory();
  }
  uint64_t MovedOut() const {
    const auto answer = control::Client::Connect(daemon_->socket())->ListMemory();
    if (!answer.ok()) return 0;
    return std::accumulate(answer->tenants().begin(), answer->tenants().end(), uint64_t{0},
                           [](uint64_t sum, const auto& tenant) { return sum + tenant.moved_out_bytes(); });
  }

  std::unique_ptr<DaemonProcess> daemon_;
  std::string folder_;
};

TEST_F(MovedMemoryTest, IdleProgramsMemoryLeavesAndIsThereWhenItIsUsed) {
  Program a(*daemon_, "a"), b(*daemon_, "b");
  ASSERT_TRUE(a.Allocate(6).ok());
  EXPECT_EQ(MovedOut(), 0u);
  ASSERT_TRUE(b.Allocate(6).ok());
  EXPECT_GE(MovedOut(), 4 * kBlockBytes);
  for (int round = 0; round < 3; ++round) {
    for (Program* const each : {&a, &b}) {
      for (size_t i = 0; i < each->blocks(); ++i) each->Add(i);
      each->ExpectAllRight();
    }
  }
  EXPECT_LE(Device().on_device_bytes(), 128 * kMiB);
}

TEST_F(MovedMemoryTest, AProfileShowsWhatLeftAndReturned) {
  auto control = control::Client::Connect(daemon_->socket());
  ASSERT_TRUE(control.ok()) << control.status();
  const auto samples_of = [&](const std::string& tenant) {
    std::vector<v1::MemorySample> samples;
    const auto answer = control->ReadMemoryHistory(0, 0);
    EXPECT_TRUE(answer.ok()) << answer.status();
    for (const v1::MemorySample& sample : answer->samples())
      if (sample.tenant() == tenant) samples.push_back(sample);
    return samples;
  };
  Program a(*daemon_, "a"), b(*daemon_, "b");
  ASSERT_TRUE(a.Allocate(6).ok());
  EXPECT_TRUE(samples_of("claim:a").empty()) << "nothing is profiled";
  v1::StartProfileRequest profile;
  profile.mutable_selection()->set_tenant("claim:a");
  ASSERT_EQ(control->StartProfile(profile)->sessions(), 1u);
  ASSERT_TRUE(Within(milliseconds(5000), [&] { return !samples_of("claim:a").empty(); }));
  EXPECT_GE(samples_of("claim:a").front().on_device_bytes(), 6 * kBlockBytes);
  ASSERT_TRUE(b.Allocate(6).ok());
  const auto left = [](const auto& sample) { return sample.moved_out_bytes() >= 4 * kBlockBytes; };
  EXPECT_TRUE(Within(milliseconds(5000), [&] { return std::ranges::any_of(samples_of("claim:a"), left); }));
  EXPECT_TRUE(Within(milliseconds(5000), [&] {
    return std::ranges::any_of(samples_of(""), [](const auto& of) { return of.host_bytes() != 0; });
  })) << "of the device";
  a.ExpectAllRight();
  EXPECT_TRUE(
      Within(milliseconds(5000), [&] { return samples_of("claim:a").back().moved_out_bytes() == 0; }));
  if (!std::filesystem::exists(std::filesystem::path(DaemonBinary()).replace_filename("xpuctl"))) return;
  std::string trace;
  ASSERT_EQ(daemon_->Ask("profile save --tenant claim:a - -o chrome", trace), 0) << trace;
  for (const char* const name :
       {"on device: claim:a", "moved out: claim:a", "host memory of what is moved out"})
    EXPECT_THAT(trace, HasSubstr(std::string("{\"ph\":\"C\",\"name\":\"") + name + "\""));
  EXPECT_THAT(trace, Not(HasSubstr("claim:b"))) << "it was not selected";
}

TEST_F(MovedMemoryTest, ProgramsAtWorkTakeTurnsAndLoseNothing) {
  std::vector<std::thread> threads;
  for (int p = 0; p < 3; ++p) {
    threads.emplace_back([&, p] {
      Program program(*daemon_, "p" + std::to_string(p));
      ASSERT_TRUE(program.Allocate(4).ok());
      for (int round = 0; round < 40; ++round) {
        for (size_t i = 0; i < program.blocks(); ++i) program.Add(i);
        program.ExpectRight(static_cast<size_t>(round) % program.blocks());
      }
      program.ExpectAllRight();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(Device().turns(), 0u);
  EXPECT_TRUE(Within(milliseconds(5000), [&] { return daemon_->StatusOf("pool_bytes") == 0; }));
  EXPECT_EQ(Device().host_bytes(), 0u);
}

TEST_F(MovedMemoryTest, ClaimMayHaveMoreThanTheDevice) {
  Program large(*daemon_, "large", 0, 512 * kMiB);
  ASSERT_TRUE(large.Allocate(14).ok());
  for (int round = 0; round < 3; ++round) {
    for (size_t i = 0; i < large.blocks(); ++i) large.Add(i);
  }
  large.ExpectAllRight();
}

// Without a claim for more, a program alone is refused what it was always refused, and nothing gets slow.
TEST_F(MovedMemoryTest, ProgramAloneIsOutOfMemoryWhereItAllocates) {
  Program a(*daemon_, "a");
  const absl::Status refused = a.Allocate(9);
  EXPECT_TRUE(absl::IsResourceExhausted(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr("out of memory"));
  EXPECT_EQ(MovedOut(), 0u);
  a.ExpectAllRight();
}

TEST_F(MovedMemoryTest, OutOfMemoryWhereItIsAllocatedIfTheHostIsFull) {
  Start("64MiB");
  Program a(*daemon_, "a"), b(*daemon_, "b");
  ASSERT_TRUE(a.Allocate(6).ok());
  const absl::Status refused = b.Allocate(6);
  EXPECT_TRUE(absl::IsResourceExhausted(refused)) << refused;
  a.ExpectAllRight();
  b.ExpectAllRight();
}

TEST_F(MovedMemoryTest, FilesHoldWhatTheHostHasNoRoomFor) {
  StartWithFile("1GiB");
  Program a(*daemon_, "a"), b(*daemon_, "b"), c(*daemon_, "c"), d(*daemon_, "d"), e(*daemon_, "e");
  Program* const all[] = {&a, &b, &c, &d, &e};
  for (Program* const each : all) ASSERT_TRUE(each->Allocate(6).ok());
  EXPECT_GE(Device().file_bytes(), (30 - 8 - 8) * 16 * kMiB);
  for (int round = 0; round < 2; ++round) {
    for (Program* const each : all) {
      for (size_t i = 0; i < each->blocks(); ++i) each->Add(i);
      each->ExpectAllRight();
    }
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder_)) << "the file has no name";
  EXPECT_LE(Device().on_device_bytes(), 128 * kMiB);
  EXPECT_LE(Device().host_bytes(), 128 * kMiB);
}

TEST_F(MovedMemoryTest, ProgramsAtWorkTakeTurnsByWayOfFiles) {
  StartWithFile("1GiB");
  std::vector<std::thread> threads;
  for (int p = 0; p < 5; ++p) {
    threads.emplace_back([&, p] {
      Program program(*daemon_, "p" + std::to_string(p));
      ASSERT_TRUE(program.Allocate(6).ok());
      for (int round = 0; round < 5; ++round) {
        for (size_t i = 0; i < program.blocks(); ++i) program.Add(i);
        program.ExpectRight(static_cast<size_t>(round) % program.blocks());
      }
      program.ExpectAllRight();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(Within(milliseconds(5000), [&] { return daemon_->StatusOf("pool_bytes") == 0; }));
  EXPECT_TRUE(Within(milliseconds(5000), [&] { return Device().file_bytes() == 0; }));
}

TEST_F(MovedMemoryTest, ClaimMayHaveMoreThanDeviceAndHost) {
  StartWithFile("1GiB");
  Program large(*daemon_, "large", 0, 512 * kMiB);
  ASSERT_TRUE(large.Allocate(20).ok());
  EXPECT_GT(Device().file_bytes(), 0u);
  for (int round = 0; round < 2; ++round) {
    for (size_t i = 0; i < large.blocks(); ++i) large.Add(i);
  }
  large.ExpectAllRight();
}

TEST_F(MovedMemoryTest, OutOfMemoryWhereItIsAllocatedIfTheFileIsFullToo) {
  StartWithFile("256MiB");
  std::vector<std::unique_ptr<Program>> all;
  absl::Status last;
  for (int p = 0; p < 8 && last.ok(); ++p) {
    all.push_back(std::make_unique<Program>(*daemon_, "p" + std::to_string(p)));
    last = all.back()->Allocate(4);
  }
  EXPECT_TRUE(absl::IsResourceExhausted(last)) << last;
  EXPECT_THAT(std::string(last.message()), HasSubstr("out of memory"));
  EXPECT_GE(all.size(), 6u) << "beside what remains free, so that chunks can change places";
  EXPECT_GT(Device().file_bytes(), 0u);
  for (const auto& each : all) each->ExpectAllRight();
}

// A tenant that keeps making others' memory leave: what is guaranteed stays.
TEST_F(MovedMemoryTest, GuaranteedMemoryNeverLeaves) {
  Program safe(*daemon_, "safe", 64 * kMiB, 64 * kMiB), greedy(*daemon_, "greedy", 0, 512 * kMiB);
  ASSERT_TRUE(safe.Allocate(3).ok());
  ASSERT_TRUE(greedy.Allocate(10).ok());
  for (int round = 0; round < 5; ++round) {
    for (size_t i = 0; i < greedy.blocks(); ++i) greedy.Add(i);
    const auto answer = control::Client::Connect(daemon_->socket())->ListMemory();
    ASSERT_TRUE(answer.ok()) << answer.status();
    for (const auto& tenant : answer->tenants()) {
      if (tenant.tenant() == "claim:safe")
        EXPECT_EQ(tenant.moved_out_bytes() + tenant.moved_in_total_bytes(), 0u);
    }
    for (size_t i = 0; i < safe.blocks(); ++i) safe.Add(i);
  }
  safe.ExpectAllRight();
  greedy.ExpectAllRight();
}

TEST_F(MovedMemoryTest, MemoryOfOneTenantIsNotSeenByAnother) {
  for (int round = 0; round < 3; ++round) {
    Program a(*daemon_, "a" + std::to_string(round)), b(*daemon_, "b" + std::to_string(round));
    ASSERT_TRUE(a.Allocate(6).ok());
    ASSERT_TRUE(b.Allocate(6).ok());
    Program c(*daemon_, "c" + std::to_string(round));
    for (int i = 0; i < 4; ++i) {
      const auto fresh = c.queue().Allocate(kBlockBytes);
      ASSERT_TRUE(fresh.ok()) << fresh.status();
      // Never written, so no command may read it: one byte is written, and all are read.
      const std::byte one{1};
      ASSERT_TRUE(c.queue().Upload({&one, 1}, fresh->handle(), 0).ok());
      std::vector<uint8_t> bytes(kBlockBytes);
      ASSERT_TRUE(c.queue().Download(fresh->handle(), 0, std::as_writable_bytes(std::span(bytes))).ok());
      bytes[0] = 0;
      ASSERT_TRUE(IsAll(bytes, uint8_t{0})) << round << " " << i;
    }
  }
}

// Whatever moves when the executor is lost, contents are right afterwards.
TEST_F(MovedMemoryTest, LostExecutorsInTheMiddleOfMovesLoseNothing) {
  const char* const flags = std::getenv("XPUD_TEST_DAEMON_FLAGS");
  if (flags == nullptr || std::string(flags).find("process") == std::string::npos)
    GTEST_SKIP() << "needs an executor process: tools/test executor";
  Program a(*daemon_, "a"), b(*daemon_, "b");
  ASSERT_TRUE(a.Allocate(6).ok());
  ASSERT_TRUE(b.Allocate(6).ok());
  for (int round = 0; round < 20; ++round) {
    Program& next = round % 2 == 0 ? a : b;
    std::thread killer([&] {
      std::this_thread::sleep_for(milliseconds(7 * round % 60));
      SignalProcess(static_cast<int>(daemon_->AwaitExecutor()), SIGKILL);
    });
    next.ExpectAllRight();  // reads only: an update in place that was in flight would be an error
    killer.join();
  }
  a.ExpectAllRight();
  b.ExpectAllRight();
}

}  // namespace
}  // namespace xpud::e2e
