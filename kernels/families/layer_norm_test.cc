// Layer norm, compared with long double.
#include <cmath>

#include "gtest/gtest.h"
#include "kernels/testing/device_test_fixture.h"
#include "kernels/testing/tensor.h"

namespace xpud::kernels {
namespace {

using ops::DType;

class LayerNormTest : public DeviceTest {
 protected:
  void Check(DType type, int64_t m, int64_t n, bool weighted, Exact offset) {
    const DType statistics = type == DType::kBFloat16 || type == DType::kFloat16 ? DType::kFloat32 : type;
    TestTensor x(type, {m, n}), weight(type, {n}), bias(type, {n}), y(type, {m, n}), mean(statistics, {m}),
        rstd(statistics, {m});
    Randomise(x, random_);
    for (int64_t i = 0; i < x.numel(); ++i) x.Set(i, x.At(i) + offset);
    Randomise(weight, random_);
    Randomise(bias, random_);
    Operand ins[] = {x.operand(), weight.operand(), bias.operand()};
    ins[1].present = ins[2].present = weighted;
    const Operand outs[] = {y.operand(), mean.operand(), rstd.operand()};
    const ops::Number eps = ops::Number::Real(1e-5);
    const absl::Status status = device_.Run(*library_, {.row = &ops::RowOf("native_layer_norm"),
                                                        .compute = type,
                                                        .outputs = outs,
                                                        .inputs = ins,
                                                        .attributes = {&eps, 1}});
    ASSERT_TRUE(status.ok()) << status;
    const Exact unit = type == DType::kFloat64   ? 1e-12L
                       : type == DType::kFloat32 ? 3e-6L
                       : type == DType::kFloat16 ? 2e-3L
                                                 : 1.6e-2L;
    const Exact noise = statistics == DType::kFloat64 ? 1e-14L : 2e-7L * (1 + std::fabs(offset));
    for (int64_t r = 0; r < m; ++r) {
      Exact sum = 0, squares = 0;
      for (int64_t j = 0; j < n; ++j) sum += x.At(r * n + j);
      const Exact mu = sum / n;
      for (int64_t j = 0; j < n; ++j) squares += (x.At(r * n + j) - mu) * (x.At(r * n + j) - mu);
      const Exact scale = 1 / std::sqrt(squares / n + 1e-5L);
      ASSERT_NEAR(static_cast<double>(mean.At(r)), static_cast<double>(mu),
                  static_cast<double>(8 * noise + 1e-12L))
          << "row " << r;
      ASSERT_NEAR(static_cast<double>(rstd.At(r) / scale), 1, static_cast<double>(20 * noise + 1e-6L))
          << "row " << r;
      for (int64_t j = 0; j < n; ++j) {
        const Exact normal = (x.At(r * n + j) - mu) * scale;
        const Exact want = weighted ? normal * weight.At(j) + bias.At(j) : normal;
        ASSERT_LE(std::fabs(y.At(r * n + j) - want), unit * (std::fabs(want) + 2) + 40 * noise * scale)
            << "row " << r << " column " << j;
      }
    }
    EXPECT_TRUE(y.MarginsIntact() && mean.MarginsIntact() && rstd.MarginsIntact());
  }

  void CheckRms(DType type, int64_t m, int64_t n, bool weighted) {
    const DType statistics = type == DType::kFloat64 ? type : DType::kFloat32;
    TestTensor x(type, {m, n}), weight(type, {n}), y(type, {m, n}), rstd(statistics, {m});
    Randomise(x, random_);
    Randomise(weight, random_);
    Operand ins[] = {x.operand(), weight.operand()};
    ins[1].present = weighted;
    const Operand outs[] = {y.operand(), rstd.operand()};
    const ops::Number eps = ops::Number::Real(1e-5);
    const absl::Status status = device_.Run(*library_, {.row = &ops::RowOf("_fused_rms_norm"),
                                                        .compute = type,
                                                        .outputs = outs,
                                                        .inputs = ins,
                                                        .attributes = {&eps, 1}});
    ASSERT_TRUE(status.ok()) << status;
    const Exact unit = type == DType::kFloat64   ? 1e-12L
                       : type == DType::kFloat32 ? 3e-6L
                       : type == DType::kFloat16 ? 2e-3L
                                                 : 1.6e-2L;
    for (int64_t r = 0; r < m; ++r) {
      Exact squares = 0;
      for (int64_t j = 0; j < n; ++j) squares += x.At(r * n + j) * x.At(r * n + j);
      const Exact scale = 1 / std::sqrt(squares / n + 1e-5L);
      ASSERT_NEAR(static_cast<double>(rstd.At(r) / scale), 1, 3e-6) << "row " << r;
      for (int64_t j = 0; j < n; ++j) {
        const Exact want = x.At(r * n + j) * scale * (weighted ? weight.At(j) : 1);
        ASSERT_LE(std::fabs(y.At(r * n + j) - want), unit * (std::fabs(want) + 0.01L)) << r << " " << j;
      }
    }
    EXPECT_TRUE(y.MarginsIntact() && rstd.MarginsIntact());
  }

  std::mt19937_64 random_{5};
};

TEST_F(LayerNormTest, AgreesWithTheReference) {
  for (const DType type : {DType::kFloat32, DType::kFloat64, DType::kBFloat16, DType::kFloat16}) {
    for (const bool weighted : {false, true}) {
      for (const auto& [m, n] : {std::pair{1, 7}, {5, 384}, {3, 1000}, {0, 5}}) {
        Check(type, m, n, weighted, 0);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_F(LayerNormTest, RmsNormAgreesWithTheReference) {
  for (const DType type : {DType::kFloat32, DType::kFloat64, DType::kBFloat16, DType::kFloat16}) {
    for (const bool weighted : {false, true}) {
      for (const auto& [m, n] : {std::pair{1, 7}, {5, 384}, {300, 1000}}) CheckRms(type, m, n, weighted);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_F(LayerNormTest, LargeMeanDoesNotCancel) { Check(DType::kFloat32, 4, 512, true, 1000); }

TEST_F(LayerNormTest, ManyRowsAreCutIntoGroups) {
  Check(DType::kFloat32, 2000, 256, true, 0);
  EXPECT_GT(device_.groups(), 1u);
}

}  // namespace
}  // namespace xpud::kernels
