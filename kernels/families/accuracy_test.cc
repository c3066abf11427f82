// Reductions of many elements in f32: the result is within 8 units in the last place of the exact one, for
// data whose rounding errors do not cancel (equal elements) and data far from zero, in every loop order.
#include <array>
#include <cmath>

#include "gtest/gtest.h"
#include "kernels/testing/device_test_fixture.h"
#include "kernels/testing/tensor.h"

namespace xpud::kernels {
namespace {

using ops::DType;
using Sizes = std::vector<int64_t>;

constexpr Exact kUlps = 8;

struct Shape {
  const char* name;
  Sizes sizes, strides;
  std::vector<bool> reduced;
};

const Shape kShapes[] = {
    {"one dimension", {1000003}, {1}, {true}},
    {"every third", {300007}, {3}, {true}},
    {"short row", {1, 63}, {63, 1}, {false, true}},
    {"rows", {3, 200003}, {200003, 1}, {false, true}},
    {"few columns", {200003, 3}, {3, 1}, {true, false}},
    {"ten columns", {100003, 10}, {10, 1}, {true, false}},
    {"columns", {50021, 70}, {70, 1}, {true, false}},
    {"many columns", {3001, 700}, {700, 1}, {true, false}},
    {"images", {500, 2, 20, 20}, {800, 400, 20, 1}, {true, false, true, true}},
    {"small images", {20011, 2, 7}, {14, 7, 1}, {true, false, true}},
    {"large images", {3, 2, 100003}, {200006, 100003, 1}, {true, false, true}},
    {"channels of the middle", {30, 400, 2, 40}, {32000, 80, 40, 1}, {true, true, false, false}},
    {"middle of gaps", {300, 2, 50, 33}, {4200, 2000, 40, 1}, {true, false, true, false}},
};

enum class Data { kEqual, kPositive, kFar };
constexpr const char* kDataNames[] = {"equal", "positive", "far from 0"};

class AccuracyTest : public DeviceTest {
 protected:
  void Fill(TestTensor& tensor, Data data) {
    std::normal_distribution<float> normal;
    std::uniform_real_distribution<float> uniform;
    for (int64_t i = 0; i < tensor.numel(); ++i) {
      const float value = data == Data::kEqual      ? 0.1f
                          : data == Data::kPositive ? uniform(random_)
                                                    : normal(random_) + 1e6f;
      tensor.Set(i, static_cast<Exact>(value));
    }
  }

  // Returns the exact elements of each kept item.
  static std::vector<std::vector<Exact>> RowsOf(const TestTensor& a, const Shape& shape) {
    int64_t items = 1;
    for (size_t d = 0; d < shape.sizes.size(); ++d) items *= shape.reduced[d] ? 1 : shape.sizes[d];
    std::vector<std::vector<Exact>> rows(static_cast<size_t>(items));
    for (int64_t i = 0; i < a.numel(); ++i) {
      int64_t at = 0, rest = i, scale = 1;
      for (size_t d = shape.sizes.size(); d-- > 0; rest /= shape.sizes[d]) {
        if (shape.reduced[d]) continue;
        at += rest % shape.sizes[d] * scale;
        scale *= shape.sizes[d];
      }
      rows[static_cast<size_t>(at)].push_back(a.At(i));
    }
    return rows;
  }

  std::vector<TestTensor> Reduce(const char* name, const std::vector<const TestTensor*>& inputs,
                                 const Shape& shape, double attribute) {
    const ops::Row& row = ops::RowOf(name);
    Sizes sizes = shape.sizes;
    for (size_t d = 0; d < sizes.size(); ++d)
      if (shape.reduced[d]) sizes[d] = 1;
    std::vector<TestTensor> outputs(row.outputs, TestTensor(DType::kFloat32, sizes));
    std::vector<Operand> out, in;
    for (const TestTensor& t : outputs) out.push_back(t.operand());
    for (const TestTensor* t : inputs) in.push_back(t->operand());
    const ops::Number number = ops::Number::Real(attribute);
    const absl::Status status = device_.Run(*library_, {.row = &row,
                                                        .compute = DType::kFloat32,
                                                        .outputs = out,
                                                        .inputs = in,
                                                        .attributes = {&number, row.inputs == 1 ? 1u : 0u}});
    EXPECT_TRUE(status.ok()) << status;
    return outputs;
  }

  void Expect(const TestTensor& got, const std::vector<Exact>& want, const std::string& what) {
    Exact worst = 0;
    for (size_t i = 0; i < want.size(); ++i) {
      const Exact unit = std::ldexp(Exact{1}, std::ilogb(want[i]) - 23);
      const Exact error = std::fabs(got.At(static_cast<int64_t>(i)) - want[i]) / unit;
      worst = std::isnan(error) ? error : std::max(worst, error);
      if (std::isnan(worst)) break;
    }
    EXPECT_LE(worst, kUlps) << what;
  }

  static Exact SumOf(const std::vector<Exact>& row) {
    Exact sum = 0;
    for (const Exact x : row) sum += x;
    return sum;
  }
  static Exact MeanOf(const std::vector<Exact>& row) { return SumOf(row) / static_cast<Exact>(row.size()); }
  static Exact SquaresOf(const std::vector<Exact>& row) {
    const Exact mean = MeanOf(row);
    Exact squares = 0;
    for (const Exact x : row) squares += (x - mean) * (x - mean);
    return squares;
  }

  std::mt19937_64 random_{38};
};

TEST_F(AccuracyTest, SumsOfManyElementsRoundLittle) {
  for (const Shape& shape : kShapes) {
    for (const Data data : {Data::kEqual, Data::kPositive}) {
      TestTensor a(DType::kFloat32, shape.sizes, shape.strides);
      Fill(a, data);
      const auto rows = RowsOf(a, shape);
      std::vector<Exact> sums, means, norms;
      for (const auto& row : rows) {
        sums.push_back(SumOf(row));
        means.push_back(MeanOf(row));
        Exact squares = 0;
        for (const Exact x : row) squares += x * x;
        norms.push_back(std::sqrt(squares));
      }
      const std::string what = std::string(" of ") + kDataNames[static_cast<int>(data)] + ", " + shape.name;
      Expect(Reduce("sum", {&a}, shape, 0)[0], sums, "sum" + what);
      Expect(Reduce("mean", {&a}, shape, 0)[0], means, "mean" + what);
      Expect(Reduce("linalg_vector_norm", {&a}, shape, 2)[0], norms, "norm" + what);
    }
  }
}

TEST_F(AccuracyTest, VariancesFarFromZeroRoundLittle) {
  for (const Shape& shape : kShapes) {
    for (const Data data : {Data::kPositive, Data::kFar}) {
      TestTensor a(DType::kFloat32, shape.sizes, shape.strides);
      Fill(a, data);
      const auto rows = RowsOf(a, shape);
      std::vector<Exact> means, variances, deviations;
      for (const auto& row : rows) {
        const auto n = static_cast<Exact>(row.size());
        means.push_back(MeanOf(row));
        variances.push_back(SquaresOf(row) / (n - 1));
        deviations.push_back(1 / std::sqrt(SquaresOf(row) / n + 1e-5L));
      }
      const std::string what = std::string(" of ") + kDataNames[static_cast<int>(data)] + ", " + shape.name;
      const auto both = Reduce("xpud::var_mean", {&a}, shape, 1);
      Expect(both[0], variances, "variance" + what);
      Expect(both[1], means, "mean" + what);
      Expect(Reduce("var.correction", {&a}, shape, 1)[0], variances, "var" + what);
      Expect(Reduce("xpud::mean_rstd", {&a}, shape, 1e-5)[1], deviations, "rstd" + what);
    }
  }
}

// One element that differs much from all others, at the beginning, where the shift comes from.
TEST_F(AccuracyTest, VarianceOfAnOutlierRoundsLittle) {
  for (const Shape& shape : {kShapes[0], kShapes[2], kShapes[5]}) {
    TestTensor a(DType::kFloat32, shape.sizes, shape.strides);
    Fill(a, Data::kFar);
    a.Set(0, 0);
    std::vector<Exact> variances;
    for (const auto& row : RowsOf(a, shape))
      variances.push_back(SquaresOf(row) / static_cast<Exact>(row.size() - 1));
    Expect(Reduce("var.correction", {&a}, shape, 1)[0], variances, std::string("outlier, ") + shape.name);
  }
}

TEST_F(AccuracyTest, JointSumsRoundLittle) {
  for (const Shape& shape : kShapes) {
    TestTensor a(DType::kFloat32, shape.sizes, shape.strides), b = a, c = a;
    Fill(a, Data::kEqual);
    Fill(b, Data::kPositive);
    Fill(c, Data::kEqual);
    std::vector<Exact> first, second;
    const auto as = RowsOf(a, shape), bs = RowsOf(b, shape), cs = RowsOf(c, shape);
    for (size_t i = 0; i < as.size(); ++i) {
      first.push_back(0);
      second.push_back(0);
      for (size_t j = 0; j < as[i].size(); ++j) {
        first.back() += as[i][j] * cs[i][j];
        second.back() += bs[i][j] * cs[i][j];
      }
    }
    const auto sums = Reduce("xpud::weighted_sums", {&a, &b, &c}, shape, 0);
    Expect(sums[0], first, std::string("equal products, ") + shape.name);
    Expect(sums[1], second, std::string("products, ") + shape.name);
  }
}

TEST_F(AccuracyTest, DeviationsOfLayerNormFarFromZeroRoundLittle) {
  for (const int64_t n : {int64_t{100}, int64_t{768}, int64_t{20000}}) {
    const Shape shape = {"rows", {5, n}, {n, 1}, {false, true}};
    TestTensor x(DType::kFloat32, shape.sizes), y = x, mean(DType::kFloat32, {5}), rstd = mean,
                                                weight(DType::kFloat32, {n}), bias = weight;
    Fill(x, Data::kFar);
    const std::array outputs = {y.operand(), mean.operand(), rstd.operand()};
    const std::array inputs = {x.operand(), weight.operand(), bias.operand()};
    const ops::Number eps = ops::Number::Real(1e-5);
    ASSERT_TRUE(device_
                    .Run(*library_, {.row = &ops::RowOf("native_layer_norm"),
                                     .compute = DType::kFloat32,
                                     .outputs = outputs,
                                     .inputs = inputs,
                                     .attributes = {&eps, 1}})
                    .ok());
    std::vector<Exact> means, deviations;
    for (const auto& row : RowsOf(x, shape)) {
      means.push_back(MeanOf(row));
      deviations.push_back(1 / std::sqrt(SquaresOf(row) / static_cast<Exact>(n) + 1e-5L));
    }
    Expect(mean, means, "mean of " + std::to_string(n));
    Expect(rstd, deviations, "rstd of " + std::to_string(n));
  }
}

// A count that grew by one in f32 would stop at 2^24.
TEST_F(AccuracyTest, VarianceOfMoreElementsThanAnF32Counts) {
  constexpr int64_t kLength = (int64_t{1} << 24) + 4096;
  const Shape shape = {"expanded", {kLength, 2}, {0, 1}, {true, false}};
  TestTensor a(DType::kFloat32, {kLength, 2}, {0, 1});
  a.Set(0, 1);
  a.Set(1, 3);
  const auto both = Reduce("xpud::var_mean", {&a}, shape, 1);
  EXPECT_EQ(both[0].At(0), 0);
  EXPECT_EQ(both[1].At(1), 3);
}

}  // namespace
}  // namespace xpud::kernels
