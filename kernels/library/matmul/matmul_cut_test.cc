#include "kernels/library/matmul/matmul_cut.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace xpud::kernels::matmul {
namespace {

constexpr MatmulRates kRates = {.float_operations = 1e9, .half_operations = 4e9};

// out += a b + c, by the definition; counts how often each element of out is written.
void Multiply(const MatmulCall& call) {
  const MatmulProblem& p = call.problem;
  const MatmulOperands& o = call.operands;
  const auto at = [](auto* base, const Strides& s, int64_t batch, int64_t row, int64_t column) {
    using Float =
        std::conditional_t<std::is_const_v<std::remove_pointer_t<decltype(base)>>, const float, float>;
    return reinterpret_cast<Float*>(base) + batch * s.batch + row * s.row + column * s.column;
  };
  for (int64_t i = 0; i < p.batch; ++i) {
    for (int64_t m = 0; m < p.m; ++m) {
      for (int64_t n = 0; n < p.n; ++n) {
        float sum = o.c != nullptr ? *at(o.c, p.c, i, m, n) : 0;
        for (int64_t k = 0; k < p.k; ++k) sum += *at(o.a, p.a, i, m, k) * *at(o.b, p.b, i, k, n);
        *at(o.out, p.out, i, m, n) += sum;
      }
    }
  }
}

struct Sizes {
  int64_t batch, m, n, k;
};

class MatmulCutTest : public ::testing::TestWithParam<Sizes> {};

TEST_P(MatmulCutTest, PiecesAreTheWhole) {
  const auto [batch, m, n, k] = GetParam();
  std::mt19937 random(1);
  const auto filled = [&](int64_t size) {
    std::vector<float> values(static_cast<size_t>(size));
    for (float& value : values) value = static_cast<float>(random() % 5);
    return values;
  };
  const auto bytes = [](const std::vector<float>& of) {
    return reinterpret_cast<const std::byte*>(of.data());
  };
  const std::vector<float> a = filled(batch * m * k), b = filled(batch * k * n);
  for (const bool row : {false, true}) {
    const std::vector<float> c = filled(row ? n : batch * m * n);
    std::vector<float> whole(static_cast<size_t>(batch * m * n)), pieces = whole;
    MatmulCall call;
    call.problem.batch = batch, call.problem.m = m, call.problem.n = n, call.problem.k = k;
    call.problem.a = {m * k, 1, m};  // column by column
    call.problem.b = {k * n, n, 1};
    call.problem.out = {m * n, n, 1};
    call.problem.c = row ? Strides{0, 0, 1} : call.problem.out;
    call.problem.has_c = true;
    call.operands = {
        .a = bytes(a), .b = bytes(b), .c = bytes(c), .out = reinterpret_cast<std::byte*>(whole.data())};
    ASSERT_TRUE(IsLong(call.problem, kRates));
    Multiply(call);
    call.operands.out = reinterpret_cast<std::byte*>(pieces.data());
    const std::vector<MatmulCall> cut = Cut(call, kRates);
    EXPECT_GT(cut.size(), 1u);
    for (size_t i = 0; i < cut.size(); ++i) {
      Multiply(cut[i]);
      if (i + 1 < cut.size()) EXPECT_TRUE(cut[i].problem == cut[0].problem);
    }
    EXPECT_EQ(whole, pieces);
  }
}

INSTANTIATE_TEST_SUITE_P(Axes, MatmulCutTest,
                         ::testing::Values(Sizes{1, 1000, 300, 5}, Sizes{1, 300, 1100, 5},
                                           Sizes{37, 40, 70, 11}, Sizes{3, 600, 300, 3}));

TEST(MatmulCutRuleTest, OnlyLongProductsAreCutAndTheDeviceSaysWhichAreLong) {
  MatmulProblem p;
  p.m = p.n = p.k = 100;  // a million
  EXPECT_FALSE(IsLong(p, kRates));
  EXPECT_FALSE(IsLong(p, {})) << "nothing is known of the device";
  p.m = 101;
  EXPECT_TRUE(IsLong(p, kRates));
  p.in = p.out_type = ops::DType::kBFloat16;
  EXPECT_FALSE(IsLong(p, kRates));
}

// A piece is at most twice as long as it should be, since it has whole tiles; and no piece is tiny but the
// last.
TEST(MatmulCutRuleTest, PiecesAreOfTheRightLength) {
  MatmulCall call;
  MatmulProblem& p = call.problem;
  p.in = p.out_type = ops::DType::kBFloat16;
  const MatmulRates h100 = {.float_operations = 33e12, .half_operations = 495e12};
  for (const int64_t size : {8192, 10000, 16384, 32768}) {
    p.m = p.n = p.k = size;
    ASSERT_TRUE(IsLong(p, h100));
    const std::vector<MatmulCall> cut = Cut(call, h100);
    const double seconds = static_cast<double>(cut[0].problem.m) * static_cast<double>(size * size) / 495e12;
    EXPECT_LE(seconds, 2 * kPieceSeconds) << size;
    EXPECT_GE(seconds, kPieceSeconds / 2) << size;
  }
}

}  // namespace
}  // namespace xpud::kernels::matmul
