// soft_double.c beside the processor's own arithmetic: the same bits, for random and for difficult operands.
#include <bit>
#include <cmath>
#include <cstdint>
#include <random>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

extern "C" {
#include "kernels/compiler/soft_double.c"  // NOLINT(bugprone-suspicious-include): what is tested
}

namespace xpud::kernels {
namespace {

double DoubleOf(uint64_t bits) { return std::bit_cast<double>(bits); }
uint64_t BitsOf(double x) { return std::bit_cast<uint64_t>(x); }

class SoftDoubleTest : public ::testing::Test {
 protected:
  static constexpr int kRounds = 2'000'000;

  // Any bits, numbers of similar size, the ends of the range, short numbers, whole numbers.
  uint64_t Operand() {
    constexpr uint64_t kSpecial[] = {0,
                                     SIGN,
                                     INFINITE,
                                     SIGN | INFINITE,
                                     NOT_A_NUMBER,
                                     1,
                                     SIGN | 1,
                                     HIDDEN,
                                     FRACTION,
                                     ONE,
                                     SIGN | ONE,
                                     ONE + 1,
                                     ONE - 1,
                                     0x7fefffffffffffff,
                                     HIDDEN + 1,
                                     0x4330000000000000,
                                     0x4340000000000000,
                                     0x43e0000000000000,
                                     0x3ca0000000000000};
    const uint64_t bits = random_(), fraction = bits & (SIGN | FRACTION);
    switch (random_() % 8) {
      case 0:
        return bits;
      case 1:
        return fraction | (1000 + random_() % 60) << 52;
      case 2:
        return kSpecial[random_() % std::size(kSpecial)];
      case 3:
        return (bits & (SIGN | 15ull << 48)) | (1000 + random_() % 60) << 52 | random_() % 3;
      case 4:
        return BitsOf(static_cast<double>(static_cast<int64_t>(bits >> (random_() % 64))));
      case 5:
        return BitsOf(static_cast<double>(bits % 1000) * 0.5 - 250);
      case 6:
        return fraction | (random_() % 4) << 52;
      default:
        return fraction | (1023 + random_() % 3) << 52;
    }
  }
  // Of NaN only that it is one.
  static void Expect(uint64_t got, double want, const char* what, uint64_t a, uint64_t b = 0,
                     uint64_t c = 0) {
    if (std::isnan(want) && std::isnan(DoubleOf(got))) return;
    ASSERT_EQ(got, BitsOf(want)) << what
                                 << absl::StrCat("(", absl::Hex(a), ", ", absl::Hex(b), ", ", absl::Hex(c),
                                                 ")");
  }

  std::mt19937_64 random_{1};
};

TEST_F(SoftDoubleTest, Arithmetic) {
  for (int i = 0; i < kRounds && !HasFatalFailure(); ++i) {
    const uint64_t a = Operand(), b = Operand(), c = Operand();
    const double x = DoubleOf(a), y = DoubleOf(b);
    Expect(xpud_soft_add(a, b), x + y, "add", a, b);
    Expect(xpud_soft_mul(a, b), x * y, "mul", a, b);
    Expect(xpud_soft_div(a, b), x / y, "div", a, b);
    Expect(xpud_soft_sqrt(a), std::sqrt(x), "sqrt", a);
    Expect(xpud_soft_fma(a, b, c), std::fma(x, y, DoubleOf(c)), "fma", a, b, c);
    // Almost everything cancels.
    const uint64_t near = BitsOf(-(x * y)) + random_() % 5 - 2;
    Expect(xpud_soft_fma(a, b, near), std::fma(x, y, DoubleOf(near)), "fma", a, b, near);
  }
}

TEST_F(SoftDoubleTest, Comparisons) {
  for (int i = 0; i < kRounds; ++i) {
    const uint64_t a = Operand(), b = random_() % 4 == 0 ? a : Operand();
    const double x = DoubleOf(a), y = DoubleOf(b);
    const int32_t want = std::isnan(x) || std::isnan(y) ? 2 : x < y ? -1 : x > y;
    ASSERT_EQ(xpud_soft_compare(a, b), want) << x << " " << y;
    if (x == y || want == 2) continue;
    ASSERT_EQ(xpud_soft_min(a, b), BitsOf(std::fmin(x, y))) << x << " " << y;
    ASSERT_EQ(xpud_soft_maximum(a, b), BitsOf(std::fmax(x, y))) << x << " " << y;
  }
  EXPECT_EQ(xpud_soft_min(0, SIGN), SIGN);
  EXPECT_EQ(xpud_soft_max(SIGN, 0), 0u);
  EXPECT_EQ(xpud_soft_max(NOT_A_NUMBER, ONE), ONE);
  EXPECT_EQ(xpud_soft_minimum(ONE, NOT_A_NUMBER), NOT_A_NUMBER);
}

TEST_F(SoftDoubleTest, Conversions) {
  for (int i = 0; i < kRounds && !HasFatalFailure(); ++i) {
    const uint64_t a = Operand(), whole = random_() >> (random_() % 64);
    const double x = DoubleOf(a);
    Expect(xpud_soft_trunc(a), std::trunc(x), "trunc", a);
    Expect(xpud_soft_floor(a), std::floor(x), "floor", a);
    Expect(xpud_soft_ceil(a), std::ceil(x), "ceil", a);
    Expect(xpud_soft_rint(a), std::rint(x), "rint", a);
    const auto number = static_cast<int64_t>(random_() % 2 == 0 ? whole : 0 - whole);
    Expect(xpud_soft_from_i64(number), static_cast<double>(number), "from_i64", whole);
    Expect(xpud_soft_from_u64(whole), static_cast<double>(whole), "from_u64", whole);
    if (std::fabs(x) < 9.2e18) ASSERT_EQ(xpud_soft_to_i64(a), static_cast<int64_t>(x)) << x;
    if (x >= 0 && x < 1.8e19) ASSERT_EQ(xpud_soft_to_u64(a), static_cast<uint64_t>(x)) << x;
    const auto single = static_cast<uint32_t>(random_()) & (random_() % 4 == 0 ? 0x80ffffff : ~0u);
    Expect(xpud_soft_from_f32(single), static_cast<double>(std::bit_cast<float>(single)), "from_f32", single);
    const uint64_t small = (a & (SIGN | FRACTION)) | (860 + random_() % 300) << 52;
    for (const uint64_t bits : {a, small}) {
      const auto want = static_cast<float>(DoubleOf(bits));
      const auto got = std::bit_cast<float>(xpud_soft_to_f32(bits));
      if (!std::isnan(want) || !std::isnan(got))
        ASSERT_EQ(std::bit_cast<uint32_t>(got), std::bit_cast<uint32_t>(want)) << DoubleOf(bits);
    }
  }
  EXPECT_EQ(xpud_soft_to_i64(INFINITE), INT64_MAX);
  EXPECT_EQ(xpud_soft_to_i64(SIGN | INFINITE), INT64_MIN);
  EXPECT_EQ(xpud_soft_to_u64(SIGN | ONE), 0u);
  EXPECT_EQ(xpud_soft_to_i64(NOT_A_NUMBER), 0);
}

}  // namespace
}  // namespace xpud::kernels
