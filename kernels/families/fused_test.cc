// Steps of optimizers against the formulas in fused.h, in long double; and unscaling of gradients.
#include <cmath>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/families/pack.h"
#include "kernels/testing/device_test_fixture.h"
#include "kernels/testing/tensor.h"
#include "proto/ops/check.h"

namespace xpud::kernels {
namespace {

using ops::DType;
using ops::Number;
using Tensors = std::vector<TestTensor>;

constexpr double kLr = 0.01, kBeta1 = 0.9, kBeta2 = 0.95, kDecay = 0.1, kEps = 1e-6, kScale = 8;

TestTensor ScalarOfValue(double value, DType type = DType::kFloat32) {
  TestTensor tensor(type, {});
  tensor.Set(0, value);
  return tensor;
}

// The tensors of an optimizer: lengths among which are none, one and several slices.
struct Model {
  explicit Model(DType type, std::mt19937_64& random) {
    const std::vector<int64_t> lengths = {0, 1, 5, 300, 8192, 8193, 150001};
    for (int i = 0; i < 40; ++i) {
      const std::vector<int64_t> sizes = {i < 7 ? lengths[static_cast<size_t>(i)] : i * 13 % 90};
      for (Tensors* const list : {&self, &m, &v, &x, &grads, &unscaled}) {
        list->emplace_back(type, sizes);
        Randomise(list->back(), random, {list == &v || list == &x ? 0.0 : -2.0, 2, false});
      }
      steps.push_back(ScalarOfValue(i % 9 + 1));
    }
  }
  Tensors self, m, v, x, grads, unscaled, steps;
};

class FusedTest : public DeviceTest {
 protected:
  absl::Status Run(std::string_view name, const std::vector<const Tensors*>& outputs,
                   const std::vector<const Tensors*>& inputs, std::vector<Number> attributes) {
    std::vector<Operand> of_outputs, of_inputs;
    std::vector<uint16_t> lists;
    const auto add = [&](const std::vector<const Tensors*>& from, std::vector<Operand>& to) {
      for (const Tensors* const list : from) {
        lists.push_back(static_cast<uint16_t>(list->size()));
        for (const TestTensor& tensor : *list) to.push_back(tensor.operand());
      }
    };
    add(outputs, of_outputs);
    add(inputs, of_inputs);
    const OpCall call = {.row = &ops::RowOf(name),
                         .compute = DType::kFloat32,
                         .outputs = of_outputs,
                         .inputs = of_inputs,
                         .attributes = attributes,
                         .lists = lists};
    if (absl::Status status = ops::CheckCall(call); !status.ok()) return status;
    return device_.Run(*library_, call);
  }

  static void ExpectNear(const Tensors& got, size_t tensor, int64_t e, Exact want, const char* what) {
    const TestTensor& one = got[tensor];
    const Exact relative = one.dtype() == DType::kFloat64    ? 1e-12L
                           : one.dtype() == DType::kFloat32  ? 2e-5L
                           : one.dtype() == DType::kBFloat16 ? 9e-3L
                                                             : 2e-3L;
    ASSERT_NEAR(static_cast<double>(one.At(e)), static_cast<double>(want),
                static_cast<double>(relative * (std::fabs(want) + 0.05L)))
        << what << " of tensor " << tensor << " element " << e;
    ASSERT_TRUE(e != 0 || one.MarginsIntact()) << what;
  }

  void CheckAdam(DType type, bool decoupled, bool largest, bool scaled, bool maximize);

  std::mt19937_64 random_{3};
  const Tensors none_;
};

void FusedTest::CheckAdam(DType type, bool decoupled, bool largest, bool scaled, bool maximize) {
  Model model(type, random_);
  const Model old = model;
  const Tensors scale = {ScalarOfValue(kScale)};
  const std::vector<Number> attributes = {Number::Real(kLr),    Number::Real(kBeta1),
                                          Number::Real(kBeta2), Number::Real(kDecay),
                                          Number::Real(kEps),   Number::Integer(maximize)};
  ASSERT_TRUE(
      Run(decoupled ? "xpud::fused_adamw" : "xpud::fused_adam",
          {&model.self, &model.m, &model.v, largest ? &model.x : &none_, scaled ? &model.unscaled : &none_},
          {&model.grads, &model.steps, &none_, scaled ? &scale : &none_, &none_}, attributes)
          .ok());
  for (size_t i = 0; i < model.self.size(); ++i) {
    const Exact step = model.steps[i].At(0);
    for (int64_t e = 0; e < model.self[i].numel(); e += 1 + e / 700) {
      const Exact unscaled = model.grads[i].At(e) / (scaled ? kScale : 1);
      Exact g = maximize ? -unscaled : unscaled, p = old.self[i].At(e);
      if (decoupled) p -= kLr * kDecay * p;
      if (!decoupled) g += kDecay * p;
      const Exact m = kBeta1 * old.m[i].At(e) + (1 - kBeta1) * g,
                  v = kBeta2 * old.v[i].At(e) + (1 - kBeta2) * g * g;
      const Exact x = std::max(v, old.x[i].At(e)), root = std::sqrt(1 - std::pow(Exact{kBeta2}, step));
      p -= kLr / (1 - std::pow(Exact{kBeta1}, step)) * m / (std::sqrt(largest ? x : v) / root + kEps);
      ExpectNear(model.self, i, e, p, "parameter");
      ExpectNear(model.m, i, e, m, "exp_avg");
      ExpectNear(model.v, i, e, v, "exp_avg_sq");
      if (largest) ExpectNear(model.x, i, e, x, "max_exp_avg_sq");
      if (scaled) ExpectNear(model.unscaled, i, e, unscaled, "unscaled gradient");
      if (HasFatalFailure()) return;
    }
  }
}

TEST_F(FusedTest, AdamIsThatOfItsFormula) {
  for (const DType type : {DType::kFloat32, DType::kFloat64, DType::kBFloat16, DType::kFloat16}) {
    for (const bool decoupled : {false, true}) CheckAdam(type, decoupled, !decoupled, decoupled, decoupled);
    CheckAdam(type, true, false, false, false);
  }
}

TEST_F(FusedTest, SgdIsThatOfItsFormula) {
  for (const bool first : {false, true}) {
    for (const bool nesterov : {false, true}) {
      Model model(DType::kFloat32, random_);
      const Model old = model;
      const Tensors rate = {ScalarOfValue(kLr, DType::kFloat64)};
      ASSERT_TRUE(Run("xpud::fused_sgd", {&model.self, &model.m, &none_},
                      {&model.grads, &rate, &none_, &none_},
                      {Number::Real(99), Number::Real(kDecay), Number::Real(kBeta1), Number::Real(0.25),
                       Number::Integer(nesterov), Number::Integer(0), Number::Integer(first)})
                      .ok());
      for (size_t i = 0; i < model.self.size(); ++i) {
        for (int64_t e = 0; e < model.self[i].numel(); e += 1 + e / 700) {
          const Exact p = old.self[i].At(e), g = old.grads[i].At(e) + kDecay * p;
          const Exact m = first ? g : kBeta1 * old.m[i].At(e) + 0.75 * g;
          ExpectNear(model.m, i, e, m, "momentum");
          ExpectNear(model.self, i, e, p - kLr * (nesterov ? g + kBeta1 * m : m), "parameter");
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST_F(FusedTest, AdagradIsThatOfItsFormula) {
  Model model(DType::kFloat32, random_);
  const Model old = model;
  ASSERT_TRUE(Run("xpud::fused_adagrad", {&model.self, &model.v, &none_},
                  {&model.grads, &model.steps, &none_, &none_, &none_},
                  {Number::Real(kLr), Number::Real(0.5), Number::Real(kDecay), Number::Real(kEps),
                   Number::Integer(0)})
                  .ok());
  for (size_t i = 0; i < model.self.size(); ++i) {
    for (int64_t e = 0; e < model.self[i].numel(); e += 1 + e / 700) {
      const Exact p = old.self[i].At(e), g = old.grads[i].At(e) + kDecay * p, s = old.v[i].At(e) + g * g;
      const Exact rate = kLr / (1 + (model.steps[i].At(0) - 1) * 0.5);
      ExpectNear(model.v, i, e, s, "sum");
      ExpectNear(model.self, i, e, p - rate * g / (std::sqrt(s) + kEps), "parameter");
      if (HasFatalFailure()) return;
    }
  }
}

TEST_F(FusedTest, NothingIsWrittenIfAnInfinityWasFound) {
  Model model(DType::kFloat32, random_);
  const Model old = model;
  const Tensors found = {ScalarOfValue(1)}, scale = {ScalarOfValue(kScale)};
  ASSERT_TRUE(Run("xpud::fused_adamw", {&model.self, &model.m, &model.v, &model.x, &model.unscaled},
                  {&model.grads, &model.steps, &none_, &scale, &found},
                  {Number::Real(kLr), Number::Real(kBeta1), Number::Real(kBeta2), Number::Real(kDecay),
                   Number::Real(kEps), Number::Integer(0)})
                  .ok());
  for (size_t i = 0; i < model.self.size(); ++i) {
    for (int64_t e = 0; e < model.self[i].numel(); ++e) {
      ASSERT_EQ(model.self[i].At(e), old.self[i].At(e));
      ASSERT_EQ(model.m[i].At(e), old.m[i].At(e));
      ASSERT_EQ(model.unscaled[i].At(e), old.unscaled[i].At(e));
    }
  }
}

TEST_F(FusedTest, AParameterThatIsListedTwiceIsUpdatedTwice) {
  TestTensor p(DType::kFloat32, {1000}), g(DType::kFloat32, {1000});
  for (int64_t e = 0; e < 1000; ++e) p.Set(e, 4), g.Set(e, 1);
  const Operand outputs[] = {p.operand(), p.operand(), p.operand()},
                inputs[] = {g.operand(), g.operand(), g.operand()};
  const Number attributes[] = {Number::Real(0.5),  Number::Real(0),    Number::Real(0),   Number::Real(0),
                               Number::Integer(0), Number::Integer(0), Number::Integer(0)};
  const uint16_t lists[] = {3, 0, 0, 3, 0, 0, 0};
  ASSERT_TRUE(device_
                  .Run(*library_, {.row = &ops::RowOf("xpud::fused_sgd"),
                                   .compute = DType::kFloat32,
                                   .outputs = outputs,
                                   .inputs = inputs,
                                   .attributes = attributes,
                                   .lists = lists})
                  .ok());
  for (int64_t e = 0; e < 1000; ++e) ASSERT_EQ(p.At(e), 2.5);
}

TEST_F(FusedTest, UnscaleMultipliesAndFindsWhatIsNotFinite) {
  for (const DType type : {DType::kFloat32, DType::kFloat64, DType::kBFloat16, DType::kFloat16}) {
    for (const double special : {1.0, HUGE_VAL, -HUGE_VAL, std::nan("")}) {
      Model model(type, random_);
      model.grads[6].Set(149999, special);
      const Tensors old = model.grads, inverse = {ScalarOfValue(0.25)};
      Tensors found = {ScalarOfValue(0)};
      ASSERT_TRUE(Run("xpud::unscale", {&model.grads, &found}, {&inverse}, {}).ok());
      EXPECT_EQ(found[0].At(0), special == 1.0 ? 0 : 1);
      for (size_t i = 0; i < old.size(); ++i) {
        for (int64_t e = 0; e < old[i].numel(); e += 1 + e / 700) {
          if (std::isfinite(old[i].At(e)))
            ASSERT_EQ(model.grads[i].At(e), RoundTo(type, old[i].At(e) * 0.25L));
        }
      }
    }
  }
}

TEST_F(FusedTest, CallsThatDoNotFitAreRefused) {
  Model model(DType::kFloat32, random_);
  const Tensors found = {ScalarOfValue(0)}, two = {ScalarOfValue(0), ScalarOfValue(0)},
                wide = {ScalarOfValue(1, DType::kFloat64)};
  const std::vector<Number> attributes(6, Number::Real(0));
  const auto adam = [&](const Tensors& m, const Tensors& unscaled, const Tensors& steps, const Tensors& scale,
                        const Tensors& inf) {
    return Run("xpud::fused_adam", {&model.self, &m, &model.v, &none_, &unscaled},
               {&model.grads, &steps, &none_, &scale, &inf}, attributes)
        .ok();
  };
  EXPECT_TRUE(adam(model.m, none_, model.steps, none_, found));
  EXPECT_FALSE(adam(none_, none_, model.steps, none_, found));
  EXPECT_FALSE(adam(model.m, none_, none_, none_, found));
  EXPECT_FALSE(adam(model.m, model.unscaled, model.steps, none_, found)) << "no grad_scale";
  EXPECT_FALSE(adam(model.m, none_, model.steps, found, found)) << "no unscaled gradients";
  EXPECT_FALSE(adam(model.m, none_, model.steps, none_, two));
  EXPECT_FALSE(adam(model.m, none_, model.steps, none_, wide));
  EXPECT_FALSE(adam(model.m, none_, model.m, none_, found)) << "steps of several elements";
  Tensors shorter = model.m;
  shorter[3] = TestTensor(DType::kFloat32, {299});
  EXPECT_FALSE(adam(shorter, none_, model.steps, none_, found));
  shorter[3] = TestTensor(DType::kFloat64, {300});
  EXPECT_FALSE(adam(shorter, none_, model.steps, none_, found));
  shorter[3] = TestTensor(DType::kFloat32, {300}, {2});
  EXPECT_FALSE(adam(shorter, none_, model.steps, none_, found)) << "gaps";
}

}  // namespace
}  // namespace xpud::kernels
