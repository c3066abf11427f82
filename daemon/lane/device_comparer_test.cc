#include "daemon/stream/device_comparer.h"

#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "daemon/lane/testing/memory_device.h"
#include "gtest/gtest.h"
#include "kernels/dispatch/kernel_library.h"

namespace xpud::lane {
namespace {

class DeviceComparerTest : public testing::Test {
 protected:
  void Start() {
    absl::StatusOr<bool> started = false;
    for (int i = 0; i < 10'000 && started.ok() && !*started; ++i) {
      started = comparer_.StartDigest(memory_.data(), memory_.size());
      std::this_thread::sleep_for(std::chrono::milliseconds(1));  // its kernel may be compiled meanwhile
    }
    ASSERT_TRUE(started.ok()) << started.status();
    ASSERT_TRUE(*started);
  }
  void ExpectIsUnderWay() {
    const auto result = comparer_.Poll();
    ASSERT_TRUE(result.ok()) << result.status();
    ASSERT_FALSE(result->has_value());
  }

  MemoryDevice device_{/*asynchronous=*/true, 64 << 20};
  const std::shared_ptr<kernels::KernelLibrary> library_ = *kernels::KernelLibrary::Create({});
  stream::DeviceComparer comparer_{device_, *library_};
  const std::vector<std::byte> memory_ = std::vector<std::byte>(4096);
};

// What it reads, and its own memory, stay until then.
TEST_F(DeviceComparerTest, IsDoneAfterAnErrorOnceTheRestOfThePieceIs) {
  Start();
  device_.Raise(absl::InternalError("a part failed"));
  for (int i = 0; i < 3; ++i) ExpectIsUnderWay();
  device_.Announce();
  EXPECT_EQ(comparer_.Poll().status().message(), "a part failed");
}

TEST_F(DeviceComparerTest, BeginsAnewAfterALoss) {
  for (const bool fails : {true, false, false}) {
    Start();
    if (fails) device_.Raise(absl::InternalError("a part failed"));
    comparer_.Reset();
    device_.Announce();
  }
  Start();
  ExpectIsUnderWay();
  device_.Announce();
  const auto result = comparer_.Poll();
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_TRUE(result->has_value());
}

}  // namespace
}  // namespace xpud::lane
