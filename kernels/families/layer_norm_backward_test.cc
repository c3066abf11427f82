// The gradients of layer norm, compared with a long double reference.
#include <cmath>

#include "gtest/gtest.h"
#include "kernels/testing/device_test_fixture.h"
#include "kernels/testing/gpu.h"
#include "kernels/testing/tensor.h"

namespace xpud::kernels {
namespace {

using ops::DType;

class LayerNormBackwardTest : public DeviceTest {
 protected:
  struct Case {
    int64_t rows, columns;
    DType type = DType::kFloat32;
    bool weighted = true;
    bool in_place = false;  // dx overwrites grad
    bool centred = true;    // false: RMS norm
  };

  struct Tensors {
    explicit Tensors(const Case& c)
        : grad(c.type, {c.rows, c.columns}),
          x(c.type, {c.rows, c.columns}),
          mean(Statistics(c.type), {c.rows}),
          rstd(Statistics(c.type), {c.rows}),
          weight(c.type, {c.columns}),
          dx(c.type, {c.rows, c.columns}),
          dweight(c.type, {c.columns}),
          dbias(c.type, {c.columns}) {}
    static DType Statistics(DType type) { return type == DType::kFloat64 ? type : DType::kFloat32; }

    TestTensor grad, x, mean, rstd, weight, dx, dweight, dbias;
  };

  void Fill(const Case& c, Tensors& t) {
    Randomise(t.grad, random_, {.low = -2, .high = 2});
    Randomise(t.x, random_, {.low = -1, .high = 3});
    Randomise(t.weight, random_, {.low = 0.5, .high = 2});
    for (int64_t m = 0; m < c.rows; ++m) {
      Exact sum = 0, squares = 0;
      for (int64_t n = 0; n < c.columns; ++n) sum += c.centred ? t.x.AtIndex({m, n}) : 0;
      t.mean.Set(m, sum / c.columns);
      for (int64_t n = 0; n < c.columns; ++n)
        squares += std::pow(t.x.AtIndex({m, n}) - t.mean.At(m), Exact{2});
      t.rstd.Set(m, 1 / std::sqrt(squares / c.columns + Exact{1e-5}));
    }
    for (int64_t i = 0; i < c.columns; ++i) t.dweight.Set(i, 7), t.dbias.Set(i, 7);
  }

  static OpCall RmsCallOf(const Case& c, const Tensors& t, std::array<Operand, 3>& outputs,
                          std::array<Operand, 5>& inputs) {
    outputs = {c.in_place ? t.grad.operand() : t.dx.operand(), t.dweight.operand()};
    inputs = {t.grad.operand(), t.x.operand(), t.rstd.operand(), t.weight.operand()};
    inputs[3].present = c.weighted;
    return {.row = &ops::RowOf("_fused_rms_norm_backward"),
            .compute = c.type,
            .outputs = std::span(outputs).first(2),
            .inputs = std::span(inputs).first(4),
            .attributes = {}};
  }

  static OpCall CallOf(const Case& c, const Tensors& t, std::array<Operand, 3>& outputs,
                       std::array<Operand, 5>& inputs) {
    if (!c.centred) return RmsCallOf(c, t, outputs, inputs);
    outputs = {c.in_place ? t.grad.operand() : t.dx.operand(), t.dweight.operand(), t.dbias.operand()};
    inputs = {t.grad.operand(), t.x.operand(), t.mean.operand(), t.rstd.operand(), t.weight.operand()};
    inputs[4].present = c.weighted;
    return {.row = &ops::RowOf("native_layer_norm_backward"),
            .compute = c.type,
            .outputs = outputs,
            .inputs = inputs,
            .attributes = {}};
  }

  static void Compare(const TestTensor& got, const std::vector<Exact>& want, Exact magnitude, DType type,
                      const char* what) {
    const Exact unit = type == DType::kFloat64   ? 1e-13L
                       : type == DType::kFloat32 ? 1e-6L
                       : type == DType::kFloat16 ? 1e-3L
                                                 : 8e-3L;
    const Exact noise = type == DType::kFloat64 ? 1e-14L : 1e-6L;
    for (int64_t i = 0; i < got.numel(); ++i) {
      const Exact w = want[static_cast<size_t>(i)];
      if (std::fabs(got.At(i) - w) <= unit * (std::fabs(w) + 0.01L) + noise * magnitude) continue;
      FAIL() << what << " element " << i << ": got " << static_cast<double>(got.At(i)) << ", want "
             << static_cast<double>(w);
    }
    EXPECT_TRUE(got.MarginsIntact()) << what;
  }

  void Check(const Case& c) {
    SCOPED_TRACE(std::to_string(c.rows) + "x" + std::to_string(c.columns) + " " +
                 std::string(ops::Info(c.type).name) + (c.weighted ? " weighted" : ""));
    Tensors t(c);
    Fill(c, t);
    std::vector<Exact> dx(static_cast<size_t>(t.x.numel())), dweight(static_cast<size_t>(c.columns)),
        dbias(static_cast<size_t>(c.columns));
    for (int64_t m = 0; m < c.rows; ++m) {
      const Exact rstd = t.rstd.At(m);
      const auto h = [&](int64_t n) { return (t.x.AtIndex({m, n}) - t.mean.At(m)) * rstd; };
      const auto g = [&](int64_t n) { return t.grad.AtIndex({m, n}) * (c.weighted ? t.weight.At(n) : 1); };
      Exact sum = 0, product = 0;
      for (int64_t n = 0; n < c.columns; ++n) {
        sum += g(n);
        product += g(n) * h(n);
        dweight[static_cast<size_t>(n)] += t.grad.AtIndex({m, n}) * h(n);
        dbias[static_cast<size_t>(n)] += t.grad.AtIndex({m, n});
      }
      for (int64_t n = 0; n < c.columns; ++n) {
        dx[static_cast<size_t>(m * c.columns + n)] =
            rstd * (g(n) - (c.centred ? sum : 0) / c.columns - h(n) * product / c.columns);
      }
    }
    std::array<Operand, 3> outputs;
    std::array<Operand, 5> inputs;
    const absl::Status status = device_.Run(*library_, CallOf(c, t, outputs, inputs));
    ASSERT_TRUE(status.ok()) << status;
    Compare(c.in_place ? t.grad : t.dx, dx, 20, c.type, "dx");
    Compare(t.dweight, dweight, std::sqrt(static_cast<Exact>(c.rows)) * 4, c.type, "dweight");
    if (c.centred) Compare(t.dbias, dbias, std::sqrt(static_cast<Exact>(c.rows)) * 4, c.type, "dbias");
  }

  std::mt19937_64 random_{3};
};

TEST_F(LayerNormBackwardTest, EveryShapeAgreesWithTheReference) {
  for (const int64_t rows : {1, 2, 13, 100}) {
    for (const int64_t columns : {1, 3, 16, 31, 64, 384, 1000})
      Check({.rows = rows, .columns = columns, .weighted = columns % 2 == 0});
  }
}

TEST_F(LayerNormBackwardTest, EveryTypeAgreesWithTheReference) {
  for (const DType type : {DType::kFloat64, DType::kFloat16, DType::kBFloat16}) {
    for (const bool weighted : {false, true})
      Check({.rows = 11, .columns = 77, .type = type, .weighted = weighted});
  }
}

TEST_F(LayerNormBackwardTest, RmsNormAgreesWithTheReference) {
  for (const DType type : {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBFloat16}) {
    for (const bool weighted : {false, true}) {
      Check({.rows = 11, .columns = 77, .type = type, .weighted = weighted, .centred = false});
      Check({.rows = 700, .columns = 130, .type = type, .weighted = weighted, .centred = false});
    }
  }
  Check({.rows = 20, .columns = 130, .in_place = true, .centred = false});
  Check({.rows = 0, .columns = 40, .centred = false});
}

TEST_F(LayerNormBackwardTest, LargeTensorIsCutIntoParts) {
  Check({.rows = 2000, .columns = 384});
  EXPECT_GT(device_.groups(), 4u);
  Check({.rows = 30000, .columns = 10});
}

TEST_F(LayerNormBackwardTest, GradientMayTakeItsInputsPlace) {
  Check({.rows = 20, .columns = 130, .in_place = true});
}

TEST_F(LayerNormBackwardTest, NoRowsGiveGradientsOfZero) { Check({.rows = 0, .columns = 40}); }

TEST_F(LayerNormBackwardTest, ResultDoesNotDependOnTheNumberOfWorkers) {
  KernelLibrary::Options options = device_.options();
  options.workers = 17;
  const auto many = *KernelLibrary::Create(options);
  const Case c{.rows = 3000, .columns = 200};
  Tensors first(c);
  Fill(c, first);
  Tensors second = first;
  std::array<Operand, 3> outputs;
  std::array<Operand, 5> inputs;
  ASSERT_TRUE(device_.Run(*library_, CallOf(c, first, outputs, inputs)).ok());
  ASSERT_TRUE(device_.Run(*many, CallOf(c, second, outputs, inputs)).ok());
  for (int64_t i = 0; i < c.columns; ++i) {
    ASSERT_EQ(first.dweight.At(i), second.dweight.At(i));
    ASSERT_EQ(first.dbias.At(i), second.dbias.At(i));
  }
}

TEST_F(LayerNormBackwardTest, CompilesForGpus) {
  for (const DType type : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
    const Case c{.rows = 40, .columns = 300, .type = type};
    Tensors t(c);
    std::array<Operand, 3> outputs;
    std::array<Operand, 5> inputs;
    EXPECT_EQ(CompileForGpus(CallOf(c, t, outputs, inputs)), absl::OkStatus());
  }
}

}  // namespace
}  // namespace xpud::kernels
