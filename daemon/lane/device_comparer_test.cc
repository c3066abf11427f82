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

// What it reads, and its own memory, stay until then.
TEST(DeviceComparer, IsDoneAfterAnErrorOnceTheRestOfThePieceIs) {
  MemoryDevice device(/*asynchronous=*/true, 64 << 20);
  const std::shared_ptr<kernels::KernelLibrary> library = *kernels::KernelLibrary::Create({});
  stream::DeviceComparer comparer(device, *library);
  const std::vector<std::byte> memory(4096);
  absl::StatusOr<bool> started = false;
  for (int i = 0; i < 10'000 && started.ok() && !*started; ++i) {
    started = comparer.StartDigest(memory.data(), memory.size());
    std::this_thread::sleep_for(std::chrono::milliseconds(1));  // its kernel may be compiled meanwhile
  }
  ASSERT_TRUE(started.ok()) << started.status();
  ASSERT_TRUE(*started);
  device.Raise(absl::InternalError("a part failed"));
  for (int i = 0; i < 3; ++i) {
    const auto result = comparer.Poll();
    ASSERT_TRUE(result.ok()) << result.status();
    ASSERT_FALSE(result->has_value());
  }
  device.Announce();
  EXPECT_EQ(comparer.Poll().status().message(), "a part failed");
}

}  // namespace
}  // namespace xpud::lane
