// Counts and compaction beside a plain loop: every type and layout, sizes around the blocks; and `ends` that
// no count gives.
#include <limits>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/testing/device_test_fixture.h"
#include "kernels/testing/tensor.h"
#include "proto/ops/family.h"

namespace xpud::kernels {
namespace {

using ops::DType;
using Sizes = std::vector<int64_t>;

constexpr int64_t kBlock = ops::kCountBlock;

class CompactTest : public DeviceTest {
 protected:
  // Zeros, and a number other than zero for about one of `one_of`.
  TestTensor Sparse(DType type, const Sizes& sizes, const Sizes& strides, unsigned one_of) {
    TestTensor tensor = strides.empty() ? TestTensor(type, sizes) : TestTensor(type, sizes, strides);
    for (int64_t i = 0; i < tensor.numel(); ++i) {
      const bool zero = one_of == 0 || random_() % one_of != 0;
      const Exact least = ops::IsFloating(type) ? -0.0L : 0.0L;
      tensor.Set(i, zero ? (random_() % 2 == 0 ? least : 0.0L) : 1.0L);
    }
    return tensor;
  }

  absl::Status Count(const TestTensor& self, const TestTensor& ends) {
    const Operand output = ends.operand(), input = self.operand();
    return device_.Run(*library_, {.row = &ops::RowOf("xpud::nonzero_ends"),
                                   .compute = self.dtype(),
                                   .outputs = {&output, 1},
                                   .inputs = {&input, 1},
                                   .attributes = {}});
  }
  absl::Status Compact(const TestTensor& self, const TestTensor& ends, const TestTensor& out) {
    const Operand output = out.operand(), inputs[] = {self.operand(), ends.operand()};
    return device_.Run(*library_, {.row = &ops::RowOf("nonzero"),
                                   .compute = self.dtype(),
                                   .outputs = {&output, 1},
                                   .inputs = inputs,
                                   .attributes = {},
                                   .error_word = &error_});
  }

  // What a client does, and each number on the way. `transposed`: as PyTorch lays out the result.
  void Check(const TestTensor& self, bool transposed = true) {
    const int64_t elements = self.numel(), blocks = (elements + kBlock - 1) / kBlock;
    const auto rank = static_cast<int64_t>(self.sizes().size());
    TestTensor ends(DType::kInt64, {blocks});
    ASSERT_TRUE(Count(self, ends).ok());
    std::vector<int64_t> places;
    for (int64_t i = 0; i < elements; ++i) {
      if (self.At(i) != 0) places.push_back(i);
      if (i + 1 == elements || (i + 1) % kBlock == 0) {
        ASSERT_EQ(static_cast<int64_t>(ends.At(i / kBlock)), static_cast<int64_t>(places.size()))
            << "block " << i / kBlock;
      }
    }
    EXPECT_TRUE(ends.MarginsIntact());
    const auto count = static_cast<int64_t>(places.size());
    TestTensor out = transposed ? TestTensor(DType::kInt64, {count, rank}, {1, std::max<int64_t>(count, 1)})
                                : TestTensor(DType::kInt64, {count, rank});
    ASSERT_TRUE(Compact(self, ends, out).ok());
    EXPECT_EQ(error_, 0u);
    EXPECT_TRUE(out.MarginsIntact());
    for (int64_t row = 0; row < count; ++row) {
      int64_t rest = places[static_cast<size_t>(row)];
      for (int64_t d = rank; d-- > 0;) {
        const int64_t size = self.sizes()[static_cast<size_t>(d)];
        ASSERT_EQ(static_cast<int64_t>(out.At(row * rank + d)), rest % size)
            << "row " << row << ", dimension " << d;
        rest /= size;
      }
    }
  }

  std::mt19937_64 random_{7};
  uint64_t error_ = 0;
};

TEST_F(CompactTest, EveryType) {
  for (int t = 0; t < ops::kNumDTypes; ++t) {
    SCOPED_TRACE(ops::kDTypeInfo[static_cast<size_t>(t)].name);
    Check(Sparse(static_cast<DType>(t), {3, 700}, {}, 3));
  }
}

TEST_F(CompactTest, WhatIsNotANumberOrTinyIsNotZero) {
  for (const DType type : {DType::kFloat16, DType::kBFloat16, DType::kFloat32, DType::kFloat64}) {
    TestTensor self(type, {5});
    self.Set(0, -0.0L);
    self.Set(1, std::numeric_limits<Exact>::quiet_NaN());
    self.Set(2, -std::numeric_limits<Exact>::infinity());
    self.Set(3, type == DType::kFloat64 ? 5e-324L : type == DType::kFloat16 ? 6e-8L : 1.5e-39L);
    self.Set(4, 0.0L);
    TestTensor ends(DType::kInt64, {1});
    ASSERT_TRUE(Count(self, ends).ok());
    EXPECT_EQ(static_cast<int64_t>(ends.At(0)), 3) << ops::Info(type).name;
    Check(self);
  }
}

TEST_F(CompactTest, EveryLayout) {
  for (const bool transposed : {false, true}) {
    Check(Sparse(DType::kFloat32, {40, 70}, {1, 40}, 4), transposed);
    Check(Sparse(DType::kBool, {40, 70}, {140, 2}, 4), transposed);
    Check(Sparse(DType::kInt16, {13, 7, 70}, {0, 70, 1}, 4), transposed);
    Check(Sparse(DType::kInt64, {13, 7, 70}, {7, 1, 91}, 4), transposed);
    Check(Sparse(DType::kInt8, {2, 3, 2, 3, 2, 3, 2, 30}, {}, 2), transposed);
    Check(Sparse(DType::kInt8, {2, 3, 2, 1, 2, 3, 2, 2}, {1, 2, 6, 12, 12, 24, 72, 144}, 2), transposed);
    Check(Sparse(DType::kFloat32, {3000}, {0}, 1), transposed);
    Check(Sparse(DType::kFloat32, {}, {}, 1), transposed);
    Check(Sparse(DType::kFloat32, {}, {}, 0), transposed);
    Check(Sparse(DType::kFloat32, {3, 0}, {}, 1), transposed);
  }
}

TEST_F(CompactTest, SizesAroundBlocksAndSlices) {
  for (const int64_t n : {int64_t{1}, int64_t{255}, int64_t{256}, kBlock - 1, kBlock, kBlock + 1, 2 * kBlock,
                          5 * kBlock + 3, int64_t{1'000'003}}) {
    for (const unsigned one_of : {0u, 1u, 2u, 1000u}) Check(Sparse(DType::kBool, {n}, {}, one_of));
  }
  Check(Sparse(DType::kBFloat16, {700, 900}, {}, 5));
  Check(Sparse(DType::kFloat32, {700, 900}, {1, 700}, 5));
}

// A hostile client's: whatever they are, only rows of the output are written, and what is wrong is reported.
TEST_F(CompactTest, EndsThatNoCountGives) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max(), kLeast = std::numeric_limits<int64_t>::min();
  const TestTensor self = Sparse(DType::kInt8, {4 * kBlock}, {}, 1);
  const auto reported = [](int64_t end) {
    return uint64_t{static_cast<uint8_t>(DeviceError::kIndexOutOfRange)} | static_cast<uint64_t>(end) << 8;
  };
  constexpr int64_t kRows = 10;
  for (const int64_t bad : {kRows + 1, int64_t{-1}, kMost, kLeast, kMost - 512, int64_t{1} << 32}) {
    for (int64_t block = 0; block < 4; ++block) {
      TestTensor ends(DType::kInt64, {4}), out(DType::kInt64, {kRows, 1}, {3, 1});
      for (int64_t b = 0; b < 4; ++b) ends.Set(b, b == block ? static_cast<Exact>(bad) : 5 + b);
      error_ = 0;
      ASSERT_TRUE(Compact(self, ends, out).ok());
      EXPECT_EQ(error_, reported(bad)) << bad << " at " << block;
      EXPECT_TRUE(out.MarginsIntact()) << bad << " at " << block;
      // A block beside a wrong end writes nothing; the others go on.
      EXPECT_EQ(static_cast<int64_t>(out.At(0)) == 0 && static_cast<int64_t>(out.At(1)) == 1, block != 0);
    }
  }
  // Ends that go back, stand still, or leave room for fewer elements than there are.
  for (const Sizes& some : {Sizes{10, 0, 10, 0}, Sizes{0, 0, 0, 0}, Sizes{9, 3, 7, 2}, Sizes{1, 2, 3, 10}}) {
    for (const DType type : {DType::kInt32, DType::kInt64}) {
      TestTensor ends(type, {4}, {2}), out(DType::kInt64, {kRows, 1});
      for (int64_t b = 0; b < 4; ++b) ends.Set(b, static_cast<Exact>(some[static_cast<size_t>(b)]));
      error_ = 0;
      ASSERT_TRUE(Compact(self, ends, out).ok());
      EXPECT_EQ(error_, 0u);
      EXPECT_TRUE(out.MarginsIntact());
    }
  }
}

}  // namespace
}  // namespace xpud::kernels
