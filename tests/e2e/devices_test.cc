// Several devices in one daemon: CPU devices, which --test-devices makes.
#include <algorithm>
#include <array>
#include <chrono>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "sdk/control/client.h"
#include "tests/e2e/daemon_process.h"
#include "xpud/tensor.h"

namespace xpud::e2e {
namespace {

using ::testing::EndsWith;

constexpr uint32_t kDevices = 2;

using Flags = std::vector<std::string>;

class Devices : public ::testing::TestWithParam<Flags> {
 protected:
  void SetUp() override {
    Flags flags = GetParam();
    flags.insert(flags.end(), {"--test-devices", std::to_string(kDevices)});
    daemon_ = std::make_unique<DaemonProcess>(flags);
    session_ = daemon_->Connect();
    if (session_->devices()[0].kind != "cpu") GTEST_SKIP() << "--test-devices concerns CPU devices only";
    ASSERT_EQ(session_->devices().size(), kDevices);
  }

  // A computation with several kernels, whose result depends on `seed`.
  static absl::StatusOr<std::vector<float>> Compute(const Queue& queue, float seed) {
    constexpr int64_t kSize = 96;
    std::vector<float> values(kSize * kSize);
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i * 7919 % 13) / 13 + seed;
    Tensor x = *Tensor::FromHost(queue, std::span<const float>(values), {kSize, kSize});
    const Tensor weights = x;
    for (int i = 0; i < 12; ++i) x = *Softmax(*Add(*Mul(*Matmul(x, weights), 0.5), x), 1);
    return x.ToFloats();
  }

  std::unique_ptr<DaemonProcess> daemon_;
  std::unique_ptr<Session> session_;
};

TEST_P(Devices, EachIsDescribed) {
  const auto& devices = session_->devices();
  EXPECT_THAT(devices[0].name, EndsWith("#0"));
  EXPECT_THAT(devices[1].name, EndsWith("#1"));
  EXPECT_EQ(devices[0].total_memory, devices[1].total_memory);
}

TEST_P(Devices, OneSessionComputesOnAll) {
  const auto first = Compute(session_->DefaultQueue(0), 0);
  const auto second = Compute(session_->DefaultQueue(1), 0);
  ASSERT_TRUE(first.ok() && second.ok()) << first.status() << second.status();
  EXPECT_EQ(*first, *second);
}

TEST_P(Devices, SessionsComputeOnDifferentDevicesAtOnce) {
  std::array<std::thread, kDevices> threads;
  std::array<int, kDevices> right{};
  for (uint32_t i = 0; i < kDevices; ++i) {
    threads[i] = std::thread([this, i, &right = right[i]] {
      const auto session = daemon_->Connect("session " + std::to_string(i));
      const auto expected = Compute(session->DefaultQueue(i), static_cast<float>(i));
      for (int round = 0; round < 20; ++round) {
        const auto result = Compute(session->DefaultQueue(i), static_cast<float>(i));
        right += expected.ok() && result.ok() && *result == *expected;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(right, ::testing::Each(20));
}

TEST_P(Devices, MemoryIsHeldOnTheDeviceThatWasAskedFor) {
  const auto buffer = session_->DefaultQueue(1).Allocate(1 << 20);
  ASSERT_TRUE(buffer.ok()) << buffer.status();
  EXPECT_EQ(session_->Memory(0).allocated_bytes, 0u);
  EXPECT_EQ(session_->Memory(1).allocated_bytes, uint64_t{1} << 20);
}

// Also that of devices with executor processes, whose drivers know nothing of it.
TEST_P(Devices, HaveTheMemoryThatATestGivesThem) {
  constexpr uint64_t kBytes = uint64_t{256} << 20;
  Flags flags = GetParam();
  flags.insert(flags.end(), {"--test-devices", "2", "--test-device-memory", "256MiB"});
  const DaemonProcess daemon(flags);
  const auto session = daemon.Connect();
  auto control = control::Client::Connect(daemon.socket());
  ASSERT_TRUE(control.ok()) << control.status();
  const auto memory = control->ListMemory();
  ASSERT_TRUE(memory.ok()) << memory.status();
  ASSERT_EQ(memory->devices_size(), 2);
  for (uint32_t device = 0; device < kDevices; ++device) {
    EXPECT_EQ(session->devices()[device].total_memory, kBytes);
    EXPECT_EQ(memory->devices(static_cast<int>(device)).device(), device);
    EXPECT_EQ(memory->devices(static_cast<int>(device)).device_bytes(), kBytes);
    const Queue queue = session->DefaultQueue(device);
    EXPECT_TRUE(absl::IsResourceExhausted(queue.Allocate(kBytes + 1).status()));
    EXPECT_TRUE(queue.Allocate(kBytes / 2).ok());
  }
}

// The second device's work begins after the first one's: an event of one is complete if a later one of the
// other is.
TEST_P(Devices, AQueueWaitsForAnEventOfAnotherDevice) {
  const Queue first = session_->DefaultQueue(0), second = session_->DefaultQueue(1);
  Tensor there = *Tensor::FromHost(second, std::span<const float>({1, 2, 3, 4}), {4});
  Tensor x = *Tensor::Empty(first, ops::DType::kFloat32, {512, 512});
  for (int round = 0; round < 30; ++round) {
    for (int i = 0; i < 3; ++i) x = *Matmul(x, x);
    const Event before = *first.Record();
    ASSERT_TRUE(second.Wait(before).ok());
    there = *Mul(there, 1.0);
    const Event after = *second.Record();
    ASSERT_TRUE(after.Synchronize().ok());
    EXPECT_TRUE(*before.Query()) << round;
    ASSERT_TRUE(first.Wait(after).ok());  // complete: nothing is sent
  }
  EXPECT_THAT(*there.ToFloats(), ::testing::ElementsAre(1, 2, 3, 4));
}

TEST_P(Devices, StreamsOfTwoDevicesHandWorkToEachOther) {
  Queue queues[] = {session_->DefaultQueue(0), *session_->CreateQueue(1)};
  std::vector<Tensor> tensors;
  for (const Queue& queue : queues)
    tensors.push_back(*Tensor::FromHost(queue, std::span<const float>({0, 0}), {2}));
  const std::vector<Tensor> ones = {*Tensor::FromHost(queues[0], std::span<const float>({1, 1}), {2}),
                                    *Tensor::FromHost(queues[1], std::span<const float>({1, 1}), {2})};
  for (int i = 0; i < 400; ++i) {
    const size_t here = static_cast<size_t>(i) % 2;
    tensors[here] = *Add(tensors[here], ones[here]);
    ASSERT_TRUE(queues[1 - here].Wait(*queues[here].Record()).ok());
  }
  for (const Tensor& tensor : tensors) EXPECT_THAT(*tensor.ToFloats(), ::testing::Each(200));
}

// The memory is allocated when only the first device is open.
TEST_P(Devices, HostMemoryServesADeviceThatIsOpenedLater) {
  constexpr size_t kBytes = 1 << 20;
  ASSERT_TRUE(session_->DefaultQueue(0).Allocate(8).ok());
  auto host = session_->AllocateHost(2 * kBytes);
  if (absl::IsUnimplemented(host.status())) GTEST_SKIP() << "a network has no memory in common";
  ASSERT_TRUE(host.ok()) << host.status();
  const auto from = host->bytes().first(kBytes), to = host->bytes().last(kBytes);
  for (size_t i = 0; i < kBytes; ++i) from[i] = static_cast<std::byte>(i * 131 % 251);
  for (uint32_t device = 0; device < kDevices; ++device) {
    const Queue queue = session_->DefaultQueue(device);
    const Buffer buffer = *queue.Allocate(kBytes);
    std::fill(to.begin(), to.end(), std::byte{0});
    ASSERT_TRUE(queue.StartUpload(from, buffer.handle(), 0).ok());
    ASSERT_TRUE(queue.StartDownload(buffer.handle(), 0, to).ok());
    ASSERT_TRUE(queue.Synchronize().ok());
    EXPECT_TRUE(std::equal(from.begin(), from.end(), to.begin())) << device;
  }
}

TEST_P(Devices, AnErrorOnOneLeavesTheOtherAsItIs) {
  const Tensor there = *Tensor::FromHost(session_->DefaultQueue(1), std::span<const float>({5, 6}), {2});
  const Buffer small = *session_->DefaultQueue(0).Allocate(8);
  EXPECT_TRUE(session_->DefaultQueue(0).Copy(small.handle(), 0, small.handle(), 4, 8).ok());
  EXPECT_TRUE(session_->DefaultQueue(1).Synchronize().ok());
  EXPECT_THAT(*there.ToFloats(), ::testing::ElementsAre(5, 6));
  EXPECT_FALSE(session_->DefaultQueue(0).Synchronize().ok());
  EXPECT_TRUE(session_->DefaultQueue(0).Synchronize().ok());
}

TEST_P(Devices, TheEndOfASessionFreesItsMemoryOnAll) {
  for (uint32_t device = 0; device < kDevices; ++device) {
    auto buffer = session_->DefaultQueue(device).Allocate(1 << 20);
    ASSERT_TRUE(buffer.ok());
    ASSERT_TRUE(session_->DefaultQueue(device).Synchronize().ok());
  }
  session_.reset();
  EXPECT_TRUE(Within(std::chrono::seconds(5), [&] {
    const auto session = daemon_->Connect();
    return daemon_->StatusOf("memory_used_bytes") == 0;
  }));
}

std::string NameOf(const ::testing::TestParamInfo<Flags>& info) {
  constexpr const char* kNames[] = {"InTheDaemon", "Asynchronous", "InProcesses"};
  return kNames[info.index];
}

INSTANTIATE_TEST_SUITE_P(, Devices,
                         ::testing::Values(Flags{}, Flags{"--asynchronous"}, Flags{"--executor", "process"}),
                         NameOf);

}  // namespace
}  // namespace xpud::e2e
