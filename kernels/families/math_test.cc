// The math functions in difficult cases: large arguments, cancellation, the ends of the range. Compared with
// long double.
#include <cmath>

#include "gtest/gtest.h"
#include "kernels/testing/device_test_fixture.h"
#include "kernels/testing/tensor.h"

namespace xpud::kernels {
namespace {

using ops::DType;

class MathTest : public DeviceTest {
 protected:
  // Checks that the relative error of row `name` on `values` is below `limit`.
  void Check(const char* name, DType type, const std::vector<Exact>& values, Exact (*reference)(Exact),
             Exact limit) {
    const auto n = static_cast<int64_t>(values.size());
    TestTensor in(type, {n}), out(type, {n});
    for (int64_t i = 0; i < n; ++i) in.Set(i, values[static_cast<size_t>(i)]);
    const Operand input = in.operand(), output = out.operand();
    ASSERT_TRUE(device_
                    .Run(*library_, {.row = &ops::RowOf(name),
                                     .compute = type,
                                     .outputs = {&output, 1},
                                     .inputs = {&input, 1},
                                     .attributes = {}})
                    .ok());
    int bad = 0;
    for (int64_t i = 0; i < n; ++i) {
      const Exact exact = reference(in.At(i)), want = RoundTo(type, exact), got = out.At(i);
      const Exact floor = type == DType::kFloat32 ? 1e-37L : 1e-307L;
      const bool close = std::isnan(want) ? std::isnan(got)
                         : std::isinf(want)
                             ? got == want
                             : std::fabs(got - exact) <= limit * std::max(std::fabs(exact), floor);
      if (!close && bad++ < 4) {
        ADD_FAILURE() << name << "(" << static_cast<double>(in.At(i)) << "): got " << static_cast<double>(got)
                      << ", want " << static_cast<double>(exact);
      }
    }
    EXPECT_EQ(bad, 0) << name;
  }

  std::vector<Exact> Spread(Exact low, Exact high, bool negative) {
    // Evenly distributed in the logarithm.
    std::vector<Exact> values = {0, INFINITY, NAN, 1};
    for (int i = 0; i < 4000; ++i) {
      const Exact v = low * std::pow(high / low, static_cast<Exact>(random_() % 1000003) / 1000003);
      values.push_back(negative && random_() % 2 == 0 ? -v : v);
    }
    return values;
  }

  std::mt19937_64 random_{3};
};

TEST_F(MathTest, SingleAndDouble) {
  struct Case {
    const char* name;
    Exact (*reference)(Exact);
    Exact low, high;  // f64 uses high^8 if `wide`
    bool negative, wide;
    Exact single, twice;
  };
  const Case cases[] = {
      {"exp", [](Exact x) { return std::exp(x); }, 1e-6L, 100, true, false, 4e-7L, 1e-15L},
      {"exp2", [](Exact x) { return std::exp2(x); }, 1e-6L, 140, true, false, 4e-7L, 1e-15L},
      {"expm1", [](Exact x) { return std::expm1(x); }, 1e-20L, 80, true, false, 2e-7L, 1e-15L},
      {"log", [](Exact x) { return std::log(x); }, 1e-38L, 1e38L, true, true, 3e-7L, 1e-15L},
      {"log2", [](Exact x) { return std::log2(x); }, 1e-38L, 1e38L, true, true, 1e-6L, 4e-15L},
      {"log10", [](Exact x) { return std::log10(x); }, 1e-38L, 1e38L, true, true, 1e-6L, 4e-15L},
      {"log1p", [](Exact x) { return std::log1p(x); }, 1e-20L, 1e30L, true, false, 2e-7L, 1e-15L},
      {"sin", [](Exact x) { return std::sin(x); }, 1e-10L, 3e38L, true, false, 3e-7L, 1e-14L},
      {"cos", [](Exact x) { return std::cos(x); }, 1e-10L, 3e38L, true, false, 3e-7L, 1e-14L},
      {"tan", [](Exact x) { return std::tan(x); }, 1e-10L, 3e38L, true, false, 3e-7L, 1e-14L},
      {"tanh", [](Exact x) { return std::tanh(x); }, 1e-10L, 30, true, false, 4e-7L, 2e-15L},
      {"erf", [](Exact x) { return std::erf(x); }, 1e-10L, 8, true, false, 5e-7L, 2e-15L},
      {"erfc", [](Exact x) { return std::erfc(x); }, 1e-10L, 9, true, false, 1e-6L, 1e-12L},
      {"asin", [](Exact x) { return std::asin(x); }, 1e-10L, 1.1L, true, false, 3e-7L, 2e-15L},
      {"acos", [](Exact x) { return std::acos(x); }, 1e-10L, 0.999L, true, false, 3e-7L, 2e-15L},
      {"atan", [](Exact x) { return std::atan(x); }, 1e-10L, 1e20L, true, false, 3e-7L, 2e-15L},
      {"sinh", [](Exact x) { return std::sinh(x); }, 1e-10L, 80, true, false, 3e-7L, 3e-15L},
      {"cosh", [](Exact x) { return std::cosh(x); }, 1e-10L, 80, true, false, 3e-7L, 3e-15L},
      {"asinh", [](Exact x) { return std::asinh(x); }, 1e-10L, 1e30L, true, false, 3e-7L, 4e-15L},
      {"acosh", [](Exact x) { return std::acosh(x); }, 0.5L, 1e30L, false, false, 3e-7L, 4e-15L},
      {"atanh", [](Exact x) { return std::atanh(x); }, 1e-10L, 1.2L, true, false, 3e-7L, 4e-15L},
      {"sqrt", [](Exact x) { return std::sqrt(x); }, 1e-30L, 1e30L, true, false, 1e-7L, 3e-16L},
  };
  for (const Case& c : cases) {
    Check(c.name, DType::kFloat32, Spread(c.low, c.high, c.negative), c.reference, c.single);
    Check(c.name, DType::kFloat64, Spread(c.wide ? 1e-300L : c.low, c.wide ? 1e300L : c.high, c.negative),
          c.reference, c.twice);
  }
}

TEST_F(MathTest, HugeAnglesAreReducedExactly) {
  // x87's own reduction ends at 2^63. These values were computed with 1200 bits.
  Check("sin", DType::kFloat64, {1e22L}, [](Exact) -> Exact { return -0.8522008497671888017727L; }, 1e-15L);
  Check("cos", DType::kFloat64, {1e22L}, [](Exact) -> Exact { return 0.5232147853951389454976L; }, 1e-14L);
  Check("sin", DType::kFloat64, {0x1p1000L}, [](Exact) -> Exact { return -0.15920170308624243824L; }, 1e-14L);
  Check("sin", DType::kFloat32, {0x1p120L}, [](Exact) -> Exact { return 0.3778201093607520226555L; }, 3e-7L);
}

}  // namespace
}  // namespace xpud::kernels
