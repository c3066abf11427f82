// Reversal of every set of dimensions.
#include "gtest/gtest.h"
#include "kernels/testing/device_test_fixture.h"
#include "kernels/testing/tensor.h"
#include "proto/ops/check.h"

namespace xpud::kernels {
namespace {

using ops::DType;

class FlipTest : public DeviceTest {
 protected:
  absl::Status Run(const Operand& out, const Operand& self, const std::vector<int64_t>& dims) {
    std::vector<ops::Number> attributes = {ops::Number::Integer(static_cast<int64_t>(dims.size()))};
    for (const int64_t dim : dims) attributes.push_back(ops::Number::Integer(dim));
    const OpCall call{.row = &ops::RowOf("flip"),
                      .compute = self.dtype,
                      .outputs = {&out, 1},
                      .inputs = {&self, 1},
                      .attributes = attributes};
    if (absl::Status status = ops::CheckCall(call); !status.ok()) return status;
    return device_.Run(*library_, call);
  }

  void Check(DType type, const std::vector<int64_t>& strides) {
    const std::vector<int64_t> sizes = {3, 4, 21};
    TestTensor self(type, sizes, strides), out(type, sizes);
    for (int64_t i = 0; i < self.numel(); ++i)
      self.Set(i, static_cast<Exact>(type == DType::kBool ? i % 2 : i % 100));
    for (int mask = 0; mask < 8; ++mask) {
      std::vector<int64_t> dims;
      for (int64_t d = 0; d < 3; ++d)
        if (mask >> d & 1) dims.push_back(d);
      ASSERT_TRUE(Run(out.operand(), self.operand(), dims).ok());
      EXPECT_TRUE(out.MarginsIntact());
      for (int64_t i = 0; i < self.numel(); ++i) {
        int64_t from = 0, rest = i, step = 1;
        for (size_t d = 3; d-- > 0; rest /= sizes[d], step *= sizes[d]) {
          const int64_t at = rest % sizes[d];
          from += (mask >> d & 1 ? sizes[d] - 1 - at : at) * step;
        }
        ASSERT_EQ(out.At(i), self.At(from)) << "mask " << mask << " element " << i;
      }
    }
  }
};

TEST_F(FlipTest, EveryTypeLayoutAndDimension) {
  for (int t = 0; t < ops::kNumDTypes; ++t) {
    Check(static_cast<DType>(t), {84, 21, 1});
    if (HasFatalFailure()) return;
  }
  Check(DType::kFloat32, {1, 3, 12});
  Check(DType::kInt16, {200, 45, 2});
}

TEST_F(FlipTest, DimensionsThatDoNotExistAreRefused) {
  TestTensor self(DType::kFloat32, {2, 3}), out(DType::kFloat32, {2, 3});
  for (const std::vector<int64_t>& dims : {std::vector<int64_t>{2}, {-1}, {0, 0}, {INT64_MAX}})
    EXPECT_EQ(Run(out.operand(), self.operand(), dims).code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace xpud::kernels
