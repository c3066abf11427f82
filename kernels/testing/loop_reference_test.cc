// The reference itself, by kernels whose results are known in another way.
#include "kernels/testing/loop_reference.h"

#include <cmath>
#include <limits>

#include "gtest/gtest.h"
#include "proto/loops/testing/builder.h"

namespace xpud::kernels {
namespace {

using loops::Function;
using loops::kNone;
using loops::Reduction;
using loops::Role;
using loops::StatementKind;
using loops::testing::BodyBuilder;
using ops::DType;

class LoopReferenceTest : public ::testing::Test {
 protected:
  void Run(const loops::Kernel& kernel, std::vector<int64_t> sizes, std::vector<TestTensor*> operands) {
    const absl::StatusOr<loops::KernelInfo> info = loops::CheckKernel(kernel);
    ASSERT_TRUE(info.ok()) << info.status();
    LoopReference reference(kernel, *info);
    ASSERT_TRUE(reference.Run(sizes, operands).ok());
    failure_ = reference.failure();
  }
  static TestTensor Filled(DType type, const std::vector<double>& values) {
    TestTensor tensor(type, {static_cast<int64_t>(values.size())});
    for (size_t i = 0; i < values.size(); ++i) tensor.Set(static_cast<int64_t>(i), values[i]);
    return tensor;
  }
  static void ExpectEqual(const TestTensor& tensor, const std::vector<double>& values) {
    for (size_t i = 0; i < values.size(); ++i)
      EXPECT_EQ(static_cast<double>(tensor.At(static_cast<int64_t>(i))), values[i]) << i;
  }

  std::optional<LoopReference::Failure> failure_;
};

TEST_F(LoopReferenceTest, Softmax) {
  TestTensor in = Filled(DType::kBFloat16, {1, 2, 3, -1, 5, 5}),
             out = Filled(DType::kBFloat16, std::vector<double>(6));
  Run(loops::testing::Softmax(), {2, 3}, {&in, &out});
  const double sums[] = {std::exp(1) + std::exp(2) + std::exp(3), std::exp(-1) + 2 * std::exp(5)};
  for (int64_t i = 0; i < 6; ++i) {
    const double expected = std::exp(static_cast<double>(in.At(i))) / sums[i / 3];
    EXPECT_NEAR(static_cast<double>(out.At(i)), expected, expected / 256) << i;
  }
  EXPECT_FALSE(failure_);
}

TEST_F(LoopReferenceTest, IndicesUnderAMask) {
  TestTensor table = Filled(DType::kFloat32, {10, 11, 12}), index = Filled(DType::kInt64, {2, -3, 7, 1}),
             mask = Filled(DType::kBool, {1, 1, 0, 1}), out = Filled(DType::kFloat32, {9, 9, 9, 9});
  Run(loops::testing::MaskedGather(), {4, 3}, {&table, &index, &mask, &out});
  ExpectEqual(out, {12, 10, 0, 11});
  EXPECT_FALSE(failure_) << "an index that is outside, where the mask is false";
  mask.Set(2, 1);
  Run(loops::testing::MaskedGather(), {4, 3}, {&table, &index, &mask, &out});
  ASSERT_TRUE(failure_);
  EXPECT_EQ(failure_->statement, 4u);
  EXPECT_EQ(failure_->index, 7);
}

TEST_F(LoopReferenceTest, ReductionsAndScans) {
  BodyBuilder b;
  const uint32_t columns = b.Number(4), i = b.Dimension(b.Size(0)),
                 j = b.Dimension(columns, /*reduced=*/true);
  const uint32_t at = b.Add(b.Mul(i, columns), j), x = b.Load(0, at);
  const uint32_t most = b.Reduce(Reduction::kArgMax, DType::kFloat32, x, b.IndexValue(j));
  const uint32_t where = b.Make({.kind = StatementKind::kPart, .values = {most, kNone, kNone}, .integer = 1});
  const uint32_t mean = b.Reduce(Reduction::kWelford, DType::kFloat32, x);
  const uint32_t deviations =
      b.Make({.kind = StatementKind::kPart, .values = {mean, kNone, kNone}, .integer = 1});
  const uint32_t largest = b.Reduce(Reduction::kOnlineSoftmax, DType::kFloat32, x);
  const uint32_t sum =
      b.Make({.kind = StatementKind::kPart, .values = {largest, kNone, kNone}, .integer = 1});
  const uint32_t running = b.Make({.kind = StatementKind::kScan,
                                   .type = DType::kFloat32,
                                   .reduction = Reduction::kSum,
                                   .values = {x, kNone, kNone}});
  b.Store(1, i, where);
  b.Store(2, i, mean);
  b.Store(3, i, deviations);
  b.Store(4, i, sum);
  b.Store(5, at, running);
  const loops::Operand real = {DType::kFloat32, Role::kWritten};
  const loops::Kernel kernel = {
      .operands = {{DType::kFloat32, Role::kRead}, {DType::kInt64, Role::kWritten}, real, real, real, real},
      .sizes = 1,
      .bodies = {b.body}};
  TestTensor in = Filled(DType::kFloat32, {1, 4, 4, -1, 0, 0, 8, 8}),
             position = Filled(DType::kInt64, {0, 0}), means = Filled(DType::kFloat32, {0, 0}),
             squares = means, sums = means, scan = Filled(DType::kFloat32, std::vector<double>(8));
  Run(kernel, {2}, {&in, &position, &means, &squares, &sums, &scan});
  ExpectEqual(position, {1, 2});
  ExpectEqual(means, {2, 4});
  ExpectEqual(squares, {18, 64});
  EXPECT_NEAR(static_cast<double>(sums.At(0)), 2 + std::exp(-3) + std::exp(-5), 1e-6);
  ExpectEqual(scan, {1, 5, 9, 8, 0, 0, 8, 16});
}

// What one body has added up, the next one reads.
TEST_F(LoopReferenceTest, BodiesRunOneAfterAnother) {
  BodyBuilder clear, add, read;
  const uint32_t c = clear.Dimension(clear.Number(2));
  clear.Store(1, c, clear.Real(0));
  const uint32_t i = add.Dimension(add.Size(0));
  add.Make({.kind = StatementKind::kAtomicAdd,
            .operand = 1,
            .index = add.Mod(i, 2),
            .values = {add.Load(0, i), kNone, kNone}});
  const uint32_t k = read.Dimension(read.Number(2));
  const uint32_t other = read.Add(read.Number(1), read.Mul(k, read.Number(-1)));
  const uint32_t value = read.Load(1, other);
  read.Store(
      2, k,
      read.Make({.kind = StatementKind::kRound, .type = DType::kBFloat16, .values = {value, kNone, kNone}}));
  const loops::Kernel kernel = {.operands = {{DType::kFloat32, Role::kRead},
                                             {DType::kFloat32, Role::kWritten},
                                             {DType::kFloat32, Role::kWritten}},
                                .sizes = 1,
                                .bodies = {clear.body, add.body, read.body}};
  TestTensor in = Filled(DType::kFloat32, {1, 2, 300, 4, 5}), sums = Filled(DType::kFloat32, {7, 7}),
             out = sums;
  Run(kernel, {5}, {&in, &sums, &out});
  ExpectEqual(sums, {306, 6});
  ExpectEqual(out, {6, 306});
}

TEST_F(LoopReferenceTest, BitsSearchesAndConversions) {
  BodyBuilder b;
  const uint32_t count = b.Number(3), i = b.Dimension(b.Size(0)), zero = b.Number(0);
  const uint32_t x = b.Load(0, i);
  const uint32_t bits = b.Make({.kind = StatementKind::kBitcast,
                                .type = DType::kInt32,
                                .from = DType::kFloat32,
                                .values = {x, kNone, kNone}});
  const uint32_t found = b.Make({.kind = StatementKind::kSearch,
                                 .flag = true,
                                 .operand = 1,
                                 .index = zero,
                                 .bound = count,
                                 .values = {x, kNone, kNone}});
  b.Store(2, i, bits);
  b.Store(3, i, found);
  b.Store(4, i, b.Convert(DType::kInt8, x));
  const loops::Kernel kernel = {.operands = {{DType::kFloat32, Role::kRead},
                                             {DType::kFloat32, Role::kRead},
                                             {DType::kInt32, Role::kWritten},
                                             {DType::kInt64, Role::kWritten},
                                             {DType::kInt8, Role::kWritten}},
                                .sizes = 1,
                                .bodies = {b.body}};
  TestTensor in = Filled(DType::kFloat32, {1, -2.5, 6}), sorted = Filled(DType::kFloat32, {-3, 1, 5}),
             as_bits = Filled(DType::kInt32, {0, 0, 0}), positions = Filled(DType::kInt64, {0, 0, 0}),
             whole = Filled(DType::kInt8, {0, 0, 0});
  Run(kernel, {3}, {&in, &sorted, &as_bits, &positions, &whole});
  ExpectEqual(as_bits, {0x3f800000, -0x3fe00000, 0x40c00000});
  ExpectEqual(positions, {2, 1, 3});
  ExpectEqual(whole, {1, -2, 6});
}

}  // namespace
}  // namespace xpud::kernels
