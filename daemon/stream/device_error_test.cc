#include "daemon/stream/device_error.h"

#include "gtest/gtest.h"

namespace xpud::stream {
namespace {

uint64_t Word(kernels::DeviceError code, int64_t index, uint64_t statement) {
  return static_cast<uint64_t>(code) | (static_cast<uint64_t>(index) << 20 >> 12) | statement << 52;
}

TEST(DeviceErrorTest, OfALoopKernelNamesItsStatement) {
  const Reporter kernel = {"loop kernel gather", true};
  for (const int64_t index :
       {int64_t{7}, int64_t{-7}, int64_t{0}, -(int64_t{1} << 43), (int64_t{1} << 43) - 1}) {
    EXPECT_EQ(ErrorOf(Word(kernels::DeviceError::kIndexOutOfRange, index, 4095), kernel),
              absl::OutOfRangeError("index " + std::to_string(index) +
                                    " is out of bounds (loop kernel gather, statement 4095)"));
  }
  EXPECT_EQ(
      ErrorOf(Word(kernels::DeviceError::kAssertion, -1, 3), kernel),
      absl::FailedPreconditionError("a device-side assertion failed (loop kernel gather, statement 3)"));
}

TEST(DeviceErrorTest, OfAnotherOpNamesItsCall) {
  EXPECT_EQ(ErrorOf(uint64_t{7} << 8 | 1, {"gather(float32[2])"}),
            absl::OutOfRangeError("index 7 is out of range in gather(float32[2])"));
}

TEST(DeviceErrorTest, ACallOfALoopKernelMayReportWhatTheKernelDoes) {
  ops::KernelOfCall kernel;
  kernel.name = "softmax";
  kernels::OpCall call;
  call.row = &ops::RowOf("xpud::loop");
  call.kernel = &kernel;
  EXPECT_FALSE(MayReport(call));
  kernel.reports = true;
  EXPECT_TRUE(MayReport(call));
  EXPECT_EQ(Reporter::Of(call).name, "loop kernel softmax");
  EXPECT_TRUE(Reporter::Of(call).is_loop_kernel);
  call = {};
  call.row = &ops::RowOf("neg");
  EXPECT_FALSE(MayReport(call));
  EXPECT_FALSE(Reporter::Of(call).is_loop_kernel);
}

}  // namespace
}  // namespace xpud::stream
