// Several devices in one daemon: CPU devices, which --test-devices makes.
#include <array>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
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

std::string NameOf(const ::testing::TestParamInfo<Flags>& info) {
  constexpr const char* kNames[] = {"InTheDaemon", "Asynchronous", "InProcesses"};
  return kNames[info.index];
}

INSTANTIATE_TEST_SUITE_P(, Devices,
                         ::testing::Values(Flags{}, Flags{"--asynchronous"}, Flags{"--executor", "process"}),
                         NameOf);

}  // namespace
}  // namespace xpud::e2e
