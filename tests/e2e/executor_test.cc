// Tests in which the process that drives the device dies, faults or hangs: sessions keep their memory and
// continue with correct results, and the session that caused it is closed. Runs on the CPU device and, with
// XPUD_TEST_DAEMON_FLAGS="--device cuda", on a GPU.
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/daemon_process.h"
#include "xpud/tensor.h"

namespace xpud::e2e {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;
using Clock = std::chrono::steady_clock;

DaemonProcess StartDaemon(std::vector<std::string> flags = {}) {
  flags.insert(flags.end(), {"--executor", "process", "--test-kernels"});
  return DaemonProcess(flags);
}

// Whether the process runs; a zombie that waits for its new parent does not.
bool IsAlive(int64_t pid) {
  std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
  std::string text;
  if (!std::getline(stat, text)) return false;
  return text[text.rfind(')') + 2] != 'Z';
}

Tensor Upload(const Queue& queue, std::vector<float> values, std::vector<int64_t> sizes) {
  return *Tensor::FromHost(queue, std::span<const float>(values), std::move(sizes));
}

// Runs `op` in place on `tensor`; a second input is 1.
absl::Status Execute(const char* op, const Tensor& tensor, std::vector<ops::Number> attributes = {}) {
  const TensorRef output[] = {tensor.ref()};
  const TensorRef inputs[] = {tensor.ref(), TensorRef::Immediate(1.0), TensorRef::Immediate(1.0)};
  OpCall call;
  call.row = &ops::RowOf(op);
  call.compute = tensor.dtype();
  call.outputs = output;
  call.inputs = {inputs, call.row->inputs};
  call.attributes = attributes;
  return tensor.queue().Execute(call);
}

// A client that repeats one computation and compares every result with the first.
class Bystander {
 public:
  explicit Bystander(const DaemonProcess& daemon)
      : session_(daemon.Connect("bystander")), thread_([this] { Main(); }) {
    while (rounds_ < 3 && failure_.ok()) std::this_thread::sleep_for(milliseconds(1));
  }
  ~Bystander() { Stop(); }

  void Stop() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
  }
  int rounds() const { return rounds_; }
  int wrong() const { return wrong_; }
  const absl::Status& failure() const { return failure_; }  // after Stop
  milliseconds longest() const { return longest_; }

 private:
  static constexpr int64_t kSize = 96;

  absl::StatusOr<std::vector<float>> Compute(const Tensor& weights) {
    std::vector<float> values(kSize * kSize);
    std::iota(values.begin(), values.end(), 1.0f);
    Tensor x = Upload(session_->DefaultQueue(0), std::move(values), {kSize, kSize});
    for (int i = 0; i < 12; ++i) x = *Softmax(*Add(*Mul(*Matmul(x, weights), 0.5), x), 1);
    return x.ToFloats();
  }

  void Main() {
    std::vector<float> values(kSize * kSize);
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i * 7919 % 13) / 13;
    const Tensor weights = Upload(session_->DefaultQueue(0), std::move(values), {kSize, kSize});
    std::vector<float> first;
    while (!stop_) {
      const auto start = Clock::now();
      const auto result = Compute(weights);
      if (!result.ok()) {
        failure_ = result.status();
        return;
      }
      if (first.empty()) first = *result;
      wrong_ += *result != first;
      if (++rounds_ > 3)  // kernels are compiled by then
        longest_ = std::max(longest_, std::chrono::duration_cast<milliseconds>(Clock::now() - start));
    }
  }

  std::unique_ptr<Session> session_;
  std::atomic<bool> stop_{false};
  std::atomic<int> rounds_{0}, wrong_{0};
  absl::Status failure_;
  milliseconds longest_{0};
  std::thread thread_;
};

// Stops the bystanders and checks that they noticed nothing except a pause.
void ExpectUndisturbed(const DaemonProcess& daemon, std::vector<std::unique_ptr<Bystander>>& bystanders) {
  milliseconds longest{0};
  for (auto& bystander : bystanders) {
    const int rounds = bystander->rounds();
    EXPECT_TRUE(Within(milliseconds(20'000), [&] { return bystander->rounds() > rounds + 2; }));
    bystander->Stop();
    EXPECT_TRUE(bystander->failure().ok()) << bystander->failure();
    EXPECT_EQ(bystander->wrong(), 0);
    longest = std::max(longest, bystander->longest());
  }
  ::testing::Test::RecordProperty("longest_round_ms", static_cast<int>(longest.count()));
  std::printf("longest round of a bystander: %d ms\n%s", static_cast<int>(longest.count()),
              daemon.Log().c_str());
}

std::vector<std::unique_ptr<Bystander>> StartBystanders(const DaemonProcess& daemon, int count = 3) {
  std::vector<std::unique_ptr<Bystander>> bystanders;
  for (int i = 0; i < count; ++i) bystanders.push_back(std::make_unique<Bystander>(daemon));
  return bystanders;
}

TEST(Executor, AKilledOneIsReplacedAndNobodyNotices) {
  DaemonProcess daemon = StartDaemon();
  auto bystanders = StartBystanders(daemon);
  for (int i = 1; i <= 5; ++i) {
    const int64_t pid = daemon.StatusOf("executor_pid");
    ASSERT_GT(pid, 0);
    SignalProcess(pid, SIGKILL);
    EXPECT_TRUE(Within(milliseconds(20'000), [&] { return daemon.StatusOf("executors_replaced") == i; }));
    std::this_thread::sleep_for(milliseconds(20 * i));
  }
  ExpectUndisturbed(daemon, bystanders);
}

TEST(Executor, OneThatIsKilledIdleIsReplacedWithMemoryAndAll) {
  DaemonProcess daemon = StartDaemon();
  auto session = daemon.Connect();
  const Tensor kept = Upload(session->DefaultQueue(0), {1, 2, 3}, {3});
  ASSERT_TRUE(session->DefaultQueue(0).Synchronize().ok());
  SignalProcess(daemon.AwaitExecutor(), SIGKILL);
  EXPECT_THAT(*Mul(kept, 2.0)->ToFloats(), ::testing::ElementsAre(2, 4, 6));
}

// Work that a program repeats is replayed from recordings, whatever changes between two rounds.
TEST(Executor, WhatComesAgainIsReplayedAndRight) {
  DaemonProcess daemon = StartDaemon();
  auto session = daemon.Connect();
  const auto executor = static_cast<pid_t>(daemon.StatusOf("executor_pid"));
  ASSERT_GT(executor, 0);
  const Tensor one = Upload(session->DefaultQueue(0), {1, 1, 1}, {3});
  for (int round = 0; round < 200; ++round) {
    const auto start = static_cast<float>(round);
    Tensor x = Upload(session->DefaultQueue(0), {start, start + 1, start + 2}, {3});
    const int adds = round % 10 == 9 ? 77 : 100;
    SignalProcess(executor, SIGSTOP);  // so that it finds many launches at once
    for (int i = 0; i < adds; ++i) x = *Add(x, one);
    SignalProcess(executor, SIGCONT);
    const auto end = start + static_cast<float>(adds);
    ASSERT_THAT(*x.ToFloats(), ::testing::ElementsAre(end, end + 1, end + 2)) << round;
  }
  EXPECT_GT(daemon.StatusOf("launches_replayed"), 0);
}

TEST(Executor, ItEndsWithItsDaemon) {
  DaemonProcess daemon = StartDaemon();
  const int64_t pid = daemon.StatusOf("executor_pid");
  ASSERT_GT(pid, 0);
  daemon.Kill();
  EXPECT_TRUE(Within(milliseconds(5'000), [&] { return !IsAlive(pid); }));
}

TEST(Executor, AFaultClosesTheSessionThatMadeItAndNoOther) {
  DaemonProcess daemon = StartDaemon();
  auto bystanders = StartBystanders(daemon);
  for (int i = 0; i < 2; ++i) {
    auto guilty = daemon.Connect("guilty");
    const Tensor victim = Upload(guilty->DefaultQueue(0), {1}, {1});
    ASSERT_TRUE(Execute("xpud::test_fault", victim).ok());
    const absl::Status fate = guilty->DefaultQueue(0).Synchronize();
    EXPECT_EQ(fate.code(), absl::StatusCode::kUnavailable) << fate;
    EXPECT_THAT(std::string(fate.message()), AnyOf(HasSubstr("faulted"), HasSubstr("it ended")));
  }
  ExpectUndisturbed(daemon, bystanders);
  EXPECT_EQ(daemon.StatusOf("sessions_closed_for_fault"), 2);
}

TEST(Executor, AStandbyTakesOverAfterAFault) {
  DaemonProcess daemon = StartDaemon({"--standby-executor"});
  auto bystanders = StartBystanders(daemon);
  std::this_thread::sleep_for(milliseconds(500));  // for the spare to open the device
  auto guilty = daemon.Connect("guilty");
  const Tensor victim = Upload(guilty->DefaultQueue(0), {1}, {1});
  ASSERT_TRUE(Execute("xpud::test_fault", victim).ok());
  EXPECT_EQ(guilty->DefaultQueue(0).Synchronize().code(), absl::StatusCode::kUnavailable);
  ExpectUndisturbed(daemon, bystanders);
  EXPECT_EQ(daemon.StatusOf("sessions_closed_for_fault"), 1);
}

void EndlessKernel(int64_t groups) {
  DaemonProcess daemon = StartDaemon({"--command-limit", "300"});
  auto bystanders = StartBystanders(daemon);
  auto guilty = daemon.Connect("guilty");
  const Tensor victim = Upload(guilty->DefaultQueue(0), {1}, {1});
  ASSERT_TRUE(Execute("xpud::test_endless", victim, {ops::Number::Integer(groups)}).ok());
  const absl::Status fate = guilty->DefaultQueue(0).Synchronize();
  EXPECT_EQ(fate.code(), absl::StatusCode::kUnavailable) << fate;
  EXPECT_THAT(fate.message(), HasSubstr("ran for longer than 300 ms"));
  ExpectUndisturbed(daemon, bystanders);
  EXPECT_EQ(daemon.StatusOf("sessions_closed_for_fault"), 1);
}

TEST(Executor, AnEndlessKernelIsEndedAtTheLimit) { EndlessKernel(1); }

// Other sessions' commands make no progress either; the session whose command started first is blamed.
TEST(Executor, AnEndlessKernelOnAllOfTheDeviceIsEndedAtTheLimit) { EndlessKernel(4096); }

TEST(Executor, AllocationsWaitForTheNextOne) {
  DaemonProcess daemon = StartDaemon();
  auto session = daemon.Connect();
  const Queue queue = session->DefaultQueue(0);
  std::vector<Buffer> buffers;
  for (int i = 0; i < 20; ++i) {
    SignalProcess(daemon.AwaitExecutor(), SIGKILL);
    auto buffer = queue.Allocate(size_t{80} << 20);  // more than there is: it takes another chunk
    ASSERT_TRUE(buffer.ok()) << buffer.status();
    buffers.push_back(*std::move(buffer));
    ASSERT_TRUE(queue.Synchronize().ok());
  }
}

TEST(Executor, AStandbyTakesOver) {
  DaemonProcess daemon = StartDaemon({"--standby-executor"});
  auto bystanders = StartBystanders(daemon);
  for (int i = 1; i <= 3; ++i) {
    std::this_thread::sleep_for(milliseconds(500));  // for the next spare to open the device
    SignalProcess(daemon.AwaitExecutor(), SIGKILL);
    EXPECT_TRUE(Within(milliseconds(20'000), [&] { return daemon.StatusOf("executors_replaced") == i; }));
  }
  ExpectUndisturbed(daemon, bystanders);
}

// Opens a session that shares memory, copies to and from it, and leaves.
bool Visit(const DaemonProcess& daemon) {
  auto session = daemon.Connect("visitor");
  const Queue queue = session->DefaultQueue(0);
  constexpr size_t kBytes = 1 << 20;
  const HostBuffer source = *session->AllocateHost(kBytes), back = *session->AllocateHost(kBytes);
  std::memset(source.bytes().data(), 7, kBytes);
  const Buffer buffer = *queue.Allocate(kBytes);
  return queue.StartUpload(source.bytes(), buffer.handle(), 0).ok() &&
         queue.Download(buffer.handle(), 0, back.bytes()).ok() &&
         std::memcmp(source.bytes().data(), back.bytes().data(), kBytes) == 0;
}

// Clients share and release memory while executors die: each executor has the memory at the right addresses,
// and copies in flight are repeated.
TEST(Executor, CopiesFromAndToHostMemoryAreRightWhileExecutorsDie) {
  DaemonProcess daemon = StartDaemon();
  auto session = daemon.Connect();
  const Queue queue = session->DefaultQueue(0);
  constexpr size_t kFloats = 3 << 18;  // 3 MiB
  const auto floats = [](const HostBuffer& host) {
    return std::span(reinterpret_cast<float*>(host.bytes().data()), kFloats);
  };
  const HostBuffer kept = *session->AllocateHost(kFloats * sizeof(float));
  std::iota(floats(kept).begin(), floats(kept).end(), 0.0f);
  std::atomic<bool> stop{false};
  std::thread killer([&] {
    while (!stop) {
      std::this_thread::sleep_for(milliseconds(100));
      if (const int64_t pid = daemon.StatusOf("executor_pid"); pid > 0) SignalProcess(pid, SIGKILL);
    }
  });
  std::atomic<int> visits{0}, failed_visits{0};
  std::thread visitor([&] {
    while (!stop) failed_visits += !Visit(daemon), ++visits;
  });
  int rounds = 0;
  for (const auto end = Clock::now() + std::chrono::seconds(5); Clock::now() < end; ++rounds) {
    // 20 MiB more than the pool has: a memory of its own, given to this executor or the next one.
    HostBuffer passing = *session->AllocateHost((20 + static_cast<size_t>(rounds) % 7) << 20);
    std::fill(floats(passing).begin(), floats(passing).end(), static_cast<float>(rounds));
    const HostBuffer back = *session->AllocateHost(kFloats * sizeof(float));
    const Buffer a = *queue.Allocate(kFloats * sizeof(float)), b = *queue.Allocate(kFloats * sizeof(float));
    ASSERT_TRUE(queue.StartUpload(kept.bytes(), a.handle(), 0).ok());
    ASSERT_TRUE(queue.StartUpload(passing.bytes().first(b.bytes()), b.handle(), 0).ok());
    passing.Free();
    ASSERT_TRUE(queue.Copy(a.handle(), 0, b.handle(), 0, a.bytes() / 2).ok());
    ASSERT_TRUE(queue.StartDownload(b.handle(), 0, back.bytes()).ok());
    ASSERT_TRUE(queue.Synchronize().ok());
    for (size_t i = 0; i < kFloats; ++i)
      ASSERT_EQ(floats(back)[i], i < kFloats / 2 ? static_cast<float>(i) : static_cast<float>(rounds)) << i;
  }
  stop = true;
  killer.join();
  visitor.join();
  std::printf("%d rounds, %d visits, %d executors\n", rounds, visits.load(),
              static_cast<int>(daemon.StatusOf("executors_replaced")));
  EXPECT_EQ(failed_visits, 0);
  EXPECT_GT(visits, 10);
  EXPECT_GT(daemon.StatusOf("executors_replaced"), 2);
  EXPECT_EQ(daemon.StatusOf("sessions_closed_for_fault"), 0);
}

// An in-place update that was in flight can be neither undone nor repeated. It must be an error, never a
// wrong number; work that had not started or was done must be correct.
TEST(Executor, AnUpdateInPlaceIsRightOrAnError) {
  DaemonProcess daemon = StartDaemon();
  auto session = daemon.Connect();
  const Queue queue = session->DefaultQueue(0);
  std::atomic<bool> stop{false};
  std::thread killer([&] {
    while (!stop) {
      std::this_thread::sleep_for(milliseconds(150));
      if (const int64_t pid = daemon.StatusOf("executor_pid"); pid > 0) SignalProcess(pid, SIGKILL);
    }
  });
  int right = 0, errors = 0;
  for (const auto end = Clock::now() + std::chrono::seconds(4); Clock::now() < end;) {
    const Tensor counter = Upload(queue, std::vector<float>(4096, 0), {4096});
    const Tensor other = Upload(queue, std::vector<float>(4096, 5), {4096});
    float expected = 0;
    for (int batch = 0; batch < 20; ++batch) {
      for (int i = 0; i < 30; ++i, ++expected) {
        ASSERT_TRUE(Execute("add.Tensor", counter).ok());
        const Tensor unrelated = *Mul(other, 3.0);  // takes and frees memory between the updates
      }
      const auto values = counter.ToFloats();
      if (!values.ok()) {
        EXPECT_THAT(values.status().message(), HasSubstr("executor was lost")) << values.status();
        ++errors;
        break;
      }
      for (const float value : *values) ASSERT_EQ(value, expected);
      ++right;
    }
    ASSERT_EQ((*other.ToFloats())[7], 5);
  }
  stop = true;
  killer.join();
  std::printf("%d right, %d errors\n", right, errors);
  EXPECT_GT(right, 0);
}

}  // namespace
}  // namespace xpud::e2e
