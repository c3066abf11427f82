// Equal contents of a tenant's programs in one piece of device memory: real daemons, real kernels.
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "proto/base/start_thread.h"
#include "sdk/control/client.h"
#include "tests/e2e/daemon_process.h"
#include "tests/e2e/floats.h"
#include "xpud/xpud.h"

namespace xpud::e2e {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr uint64_t kBytes = 1 << 20;
constexpr int64_t kCount = kBytes / sizeof(float);

class MergingTest : public ::testing::Test {
 protected:
  // A program that has buffers of one number each, and knows which.
  class Program {
   public:
    explicit Program(const DaemonProcess& daemon) : session_(daemon.Connect()) {}
    void Load(float value) {
      auto buffer = queue().Allocate(kBytes);
      ASSERT_TRUE(buffer.ok()) << buffer.status();
      buffers_.push_back(*std::move(buffer));
      values_.push_back(value);
      Upload(buffers_.size() - 1, value);
    }
    void Upload(size_t i, float value) {
      const std::vector<float> values(kCount, values_[i] = value);
      const absl::Status uploaded = queue().Upload(std::as_bytes(std::span(values)), buffers_[i].handle(), 0);
      ASSERT_TRUE(uploaded.ok()) << uploaded;
    }
    // Adds 1 to each number, on the device and in place.
    void Add(size_t i) {
      const absl::Status added = ExecuteInPlace(queue(), buffers_[i], "add.Tensor", {1, 1});
      ASSERT_TRUE(added.ok()) << added;
      values_[i] += 1;
    }
    void Copy(size_t from, size_t to) {
      const absl::Status copied = queue().Copy(buffers_[from].handle(), 0, buffers_[to].handle(), 0, kBytes);
      ASSERT_TRUE(copied.ok()) << copied;
      values_[to] = values_[from];
    }
    void Free(size_t i) {
      buffers_.erase(buffers_.begin() + static_cast<ptrdiff_t>(i));
      values_.erase(values_.begin() + static_cast<ptrdiff_t>(i));
    }
    absl::Status Read(size_t i, std::vector<float>& values) const {
      values.resize(kCount);
      return queue().Download(buffers_[i].handle(), 0, std::as_writable_bytes(std::span(values)));
    }
    void ExpectRight(size_t i) const {
      std::vector<float> values;
      const absl::Status read = Read(i, values);
      ASSERT_TRUE(read.ok()) << read;
      const auto wrong = std::ranges::find_if(values, [&](float value) { return value != values_[i]; });
      ASSERT_EQ(wrong, values.end()) << *wrong << " instead of " << values_[i] << " at "
                                     << wrong - values.begin() << " of buffer " << i;
    }
    void ExpectAllRight() const {
      for (size_t i = 0; i < buffers_.size(); ++i) ExpectRight(i);
    }
    Queue queue() const { return session_->DefaultQueue(0); }
    size_t size() const { return buffers_.size(); }

   private:
    std::unique_ptr<Session> session_;
    std::vector<Buffer> buffers_;
    std::vector<float> values_;
  };

  void SetUp() override {
    if (std::getenv("XPUD_TEST_REMOTE") != nullptr)
      GTEST_SKIP() << "a gateway's sessions have no control socket";
  }
  void Start(const std::vector<std::string>& arguments = {}) {
    std::vector<std::string> all = {"--merge", "tenant"};
    all.insert(all.end(), arguments.begin(), arguments.end());
    daemon_ = std::make_unique<DaemonProcess>(all);
  }
  v1::TenantMemory Memory() const {
    const auto answer = control::Client::Connect(daemon_->socket())->ListMemory();
    return answer.ok() && answer->tenants_size() > 0 ? answer->tenants(0) : v1::TenantMemory();
  }
  // Whether equal contents save so much, soon.
  bool Saves(uint64_t bytes) const {
    return Within(seconds(60), [&] { return Memory().saved_bytes() == bytes; });
  }

  std::unique_ptr<DaemonProcess> daemon_;
};

class MergingOnDevicesTest : public MergingTest, public ::testing::WithParamInterface<const char*> {
 protected:
  void SetUp() override {
    MergingTest::SetUp();
    if (!IsSkipped()) Start({"--executor", GetParam()});
  }
};
INSTANTIATE_TEST_SUITE_P(, MergingOnDevicesTest, ::testing::Values("thread", "process"),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(MergingOnDevicesTest, EqualUploadsAreThereOnceUntilOneIsWritten) {
  Program a(*daemon_), b(*daemon_), c(*daemon_);
  for (Program* const each : {&a, &b, &c}) {
    each->Load(1);
    each->Load(2);
  }
  EXPECT_TRUE(Saves(4 * kBytes)) << Memory().saved_bytes();
  EXPECT_EQ(Memory().holds_bytes(), 6 * kBytes) << "all are charged";
  for (const Program* const each : {&a, &b, &c}) each->ExpectAllRight();
  b.Add(0);
  b.Add(0);
  for (const Program* const each : {&a, &b, &c}) each->ExpectAllRight();
  EXPECT_EQ(Memory().saved_bytes(), 3 * kBytes);
  EXPECT_EQ(Memory().copied_at_write_bytes(), kBytes);
  c.Copy(1, 0);
  a.Free(0);
  for (const Program* const each : {&a, &b, &c}) each->ExpectAllRight();
  EXPECT_EQ(Memory().copied_at_write_bytes(), kBytes) << "what is overwritten is not copied";
}

TEST_P(MergingOnDevicesTest, ProgramsThatEndLeaveTheOthersTheirs) {
  auto a = std::make_unique<Program>(*daemon_), b = std::make_unique<Program>(*daemon_);
  Program c(*daemon_);
  for (Program* const each : {a.get(), b.get(), &c}) each->Load(3);
  EXPECT_TRUE(Saves(2 * kBytes));
  a.reset();
  b->Add(0);
  b->ExpectAllRight();
  b.reset();
  EXPECT_TRUE(Saves(0));
  c.ExpectAllRight();
  c.Add(0);
  c.ExpectAllRight();
}

// Programs write, copy and free at any time, while their buffers are looked at, compared, merged and copied.
TEST_P(MergingOnDevicesTest, ContentsAreRightWhateverIsWrittenMeanwhile) {
  constexpr int kPrograms = 3;
  constexpr uint64_t kCopies = 10;  // of merged memory, until it ends
  Program keeper(*daemon_);
  for (const float value : {0, 1}) keeper.Load(value);
  std::atomic<bool> ends{false};
  std::vector<std::thread> threads;
  for (int p = 0; p < kPrograms; ++p) {
    auto thread = StartThread("program", [&, p] {
      std::mt19937 random(static_cast<unsigned>(p));
      const auto pick = [&](size_t count) { return static_cast<size_t>(random()) % count; };
      Program program(*daemon_);
      for (int i = 0; i < 3; ++i) program.Load(static_cast<float>(i));
      for (int step = 0; !ends; ++step) {
        const size_t i = pick(program.size());
        switch (pick(6)) {
          case 0:
          case 1:
            program.Upload(i, static_cast<float>(pick(2)));
            break;
          case 2:
            program.Add(i);
            break;
          case 3:
            program.Copy((i + 1) % program.size(), i);
            break;
          case 4:
            program.Free(i);
            program.Load(static_cast<float>(pick(2)));
            break;
          default:
            std::this_thread::sleep_for(milliseconds(pick(30)));  // so that some are merged
        }
        if (step % 4 == 0) program.ExpectRight(pick(program.size()));
        if (::testing::Test::HasFatalFailure()) return;
      }
      program.ExpectAllRight();
    });
    ASSERT_TRUE(thread.ok()) << thread.status();
    threads.push_back(*std::move(thread));
  }
  EXPECT_TRUE(Within(seconds(120), [&] {
    return HasFatalFailure() || Memory().copied_at_write_bytes() >= kCopies * kBytes;
  })) << Memory().copied_at_write_bytes();
  ends = true;
  for (std::thread& thread : threads) thread.join();
  keeper.ExpectAllRight();
}

TEST_F(MergingTest, NothingIsMergedIfItIsOff) {
  Start({"--merge", "off"});
  Program a(*daemon_), b(*daemon_);
  a.Load(1);
  b.Load(1);
  EXPECT_FALSE(Within(seconds(1), [&] { return Memory().saved_bytes() != 0; }));
  a.ExpectAllRight();
}

// An executor is lost while merged memory is copied and written: the write is there or is an error, and the
// others keep theirs.
TEST_F(MergingTest, LostExecutorsChangeNothingThatOthersHave) {
  Start({"--executor", "process"});
  Program a(*daemon_);
  a.Load(7);
  int lost = 0;
  for (int round = 0; round < 8; ++round) {
    Program b(*daemon_);
    b.Load(7);
    ASSERT_TRUE(Saves(kBytes)) << round;
    const int64_t executor = daemon_->AwaitExecutor();
    auto killer = StartThread("killer", [&] {
      std::this_thread::sleep_for(std::chrono::microseconds(300 * round));
      SignalProcess(executor, SIGKILL);
    });
    ASSERT_TRUE(killer.ok());
    b.Add(0);
    std::vector<float> values;
    const absl::Status read = b.Read(0, values);
    killer->join();
    if (read.ok()) {
      ASSERT_TRUE(std::ranges::all_of(values, [](float value) { return value == 8; })) << round;
    } else {
      ++lost;  // the update in place was under way
    }
    a.ExpectAllRight();
  }
  EXPECT_LT(lost, 8);
}

}  // namespace
}  // namespace xpud::e2e
