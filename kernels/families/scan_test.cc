// Scans, compared with a sequential reference: each row, dimension and layout, and sizes around the cuts.
#include <cmath>
#include <limits>

#include "gtest/gtest.h"
#include "kernels/testing/device_test_fixture.h"
#include "kernels/testing/tensor.h"

namespace xpud::kernels {
namespace {

using ops::DType;

class ScanTest : public DeviceTest {
 protected:
  struct Case {
    std::string row = "cumsum";
    std::vector<int64_t> sizes;
    int dim = 0;
    DType type = DType::kFloat32;
    bool transposed = false;  // the input's dimensions are in the opposite order in memory
    bool specials = false;
  };

  static std::vector<int64_t> Strides(const std::vector<int64_t>& sizes, bool transposed) {
    std::vector<int64_t> strides(sizes.size());
    int64_t next = 1;
    for (size_t i = 0; i < sizes.size(); ++i) {
      const size_t d = transposed ? i : sizes.size() - 1 - i;
      strides[d] = next;
      next *= sizes[d];
    }
    return strides;
  }

  // Updates value and position with one more element.
  static void Step(const std::string& row, double a, int64_t k, double& value, int64_t& position) {
    if (row == "cumsum") value = k == 0 ? a : value + a;
    if (row == "cumprod") value = k == 0 ? a : value * a;
    if (row == "logcumsumexp") {
      const double low = std::fmin(value, a), high = std::fmax(value, a);
      if (k == 0 || std::isnan(a))
        value = std::isnan(value) && k > 0 ? value : a;
      else if (!std::isnan(value) && !(low == high && std::isinf(low)))
        value = high + std::log1p(std::exp(low - high));
    }
    const bool extends = row == "cummax" ? a >= value : a <= value;
    if ((row == "cummax" || row == "cummin") &&
        (k == 0 || std::isnan(a) || (!std::isnan(value) && extends))) {
      value = a;
      position = k;
    }
  }

  void Check(const Case& c) {
    std::string trace = c.row + " " + std::string(ops::Info(c.type).name) + " dim " + std::to_string(c.dim);
    for (const int64_t size : c.sizes) trace += " " + std::to_string(size);
    SCOPED_TRACE(trace + (c.transposed ? " transposed" : ""));
    const ops::Row& row = ops::RowOf(c.row);
    TestTensor in(c.type, c.sizes, Strides(c.sizes, c.transposed));
    const bool product = c.row == "cumprod";
    Randomise(in, random_,
              {.low = product ? -1.0 : -8.0, .high = product ? 1.0 : 8.0, .specials = c.specials});
    const DType out_type =
        row.types == ops::TypeRule::kSum && !ops::IsFloating(c.type) ? DType::kInt64 : c.type;
    TestTensor out(out_type, c.sizes), indices(DType::kInt64, c.sizes);
    const Operand outputs[] = {out.operand(), indices.operand()};
    const Operand input = in.operand();
    const ops::Number dim = ops::Number::Integer(c.dim);
    const absl::Status status = device_.Run(*library_, {.row = &row,
                                                        .compute = out_type,
                                                        .outputs = {outputs, row.outputs},
                                                        .inputs = {&input, 1},
                                                        .attributes = {&dim, 1}});
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_TRUE(out.MarginsIntact());
    const int64_t n = c.sizes.empty() ? 1 : c.sizes[static_cast<size_t>(c.dim)];
    int64_t inner = 1;
    for (size_t d = static_cast<size_t>(c.dim) + 1; d < c.sizes.size(); ++d) inner *= c.sizes[d];
    const double epsilon = out_type == DType::kFloat64   ? 1e-12
                           : out_type == DType::kFloat32 ? 3e-5
                           : ops::SizeOf(out_type) == 2  ? 1e-2
                                                         : 0;
    for (int64_t i = 0; i < in.numel(); ++i) {
      const int64_t k = i / inner % n;
      if (k != 0) continue;
      double value = 0, scale = 0;
      int64_t position = 0;
      for (int64_t s = 0; s < n; ++s) {
        const int64_t at = i + s * inner;
        const auto a = static_cast<double>(in.At(at));
        Step(c.row, a, s, value, position);
        scale = std::fmax(scale, std::fabs(value));
        if (c.row == "cumsum") scale = std::fmax(scale, std::fabs(a) * std::sqrt(static_cast<double>(s)));
        const auto got = static_cast<double>(out.At(at));
        const auto want = static_cast<double>(RoundTo(out_type, static_cast<Exact>(value)));
        if (std::isnan(want) || std::isinf(want)) {
          ASSERT_TRUE(got == want || (std::isnan(got) && std::isnan(want)))
              << at << ": " << got << " " << want;
        } else {
          ASSERT_NEAR(got, want, epsilon * (scale + 1)) << "element " << at;
        }
        if (row.outputs > 1) {
          ASSERT_EQ(static_cast<int64_t>(indices.At(at)), position) << "position of element " << at;
        }
      }
    }
  }

  std::mt19937_64 random_{7};
};

constexpr const char* kScans[] = {"cumsum", "cumprod", "logcumsumexp", "cummax", "cummin"};

TEST_F(ScanTest, EveryRowTakesItsTypes) {
  for (const char* const row : kScans) {
    for (int t = 0; t < ops::kNumDTypes; ++t) {
      const auto type = static_cast<DType>(t);
      if (type == DType::kBool || !ops::Contains(ops::RowOf(row).dtypes, type)) continue;
      Check({.row = row, .sizes = {3, 5}, .dim = 1, .type = type});
      Check({.row = row, .sizes = {6, 4, 40}, .dim = 1, .type = type});
    }
  }
}

TEST_F(ScanTest, EveryDimensionAndLayout) {
  for (const char* const row : kScans) {
    for (const bool transposed : {false, true}) {
      for (int dim = 0; dim < 3; ++dim)
        Check({.row = row, .sizes = {7, 33, 19}, .dim = dim, .transposed = transposed});
    }
    Check({.row = row, .sizes = {}});
    Check({.row = row, .sizes = {1}});
  }
}

TEST_F(ScanTest, SizesAroundTilesAndParts) {
  for (const int64_t n : {31, 32, 33, 255, 256, 257, 1023, 1024, 1025, 5000}) {
    Check({.row = "cummax", .sizes = {3, n}, .dim = 1});
    Check({.row = "cumsum", .sizes = {n, 3}, .dim = 0});
  }
  for (const char* const row : kScans) Check({.row = row, .sizes = {2, 100'003}, .dim = 1});
  Check({.row = "cumsum", .sizes = {40'000, 70}, .dim = 0, .type = DType::kInt32});
}

TEST_F(ScanTest, InfinitiesAndNaN) {
  for (const char* const row : {"logcumsumexp", "cummax", "cummin"}) {
    for (const bool transposed : {false, true})
      Check({.row = row, .sizes = {64, 300}, .dim = 1, .transposed = transposed, .specials = true});
    Check({.row = row, .sizes = {2, 60'000}, .dim = 1, .specials = true});
  }
}

TEST_F(ScanTest, NothingIsDoneForNothing) {
  Check({.sizes = {0, 3}, .dim = 1});
  Check({.sizes = {3, 0}, .dim = 1});
}

}  // namespace
}  // namespace xpud::kernels
