// Temporal classification beside the sum over all alignments.
#include <cmath>

#include "gtest/gtest.h"
#include "kernels/testing/device_test_fixture.h"
#include "kernels/testing/tensor.h"
#include "proto/ops/check.h"

namespace xpud::kernels {
namespace {

using ops::DType;
using Labels = std::vector<int64_t>;

constexpr int64_t kBlank = 1;

struct Shape {
  int64_t steps;
  Labels labels;
};

// Repeated labels become one, and blanks vanish.
Labels CollapseOf(const Labels& path) {
  Labels labels;
  for (size_t t = 0; t < path.size(); ++t) {
    if (path[t] != kBlank && (t == 0 || path[t] != path[t - 1])) labels.push_back(path[t]);
  }
  return labels;
}

class CtcTest : public DeviceTest {
 protected:
  absl::Status Run(const char* row, std::vector<Operand> outputs, std::vector<Operand> inputs,
                   std::vector<ops::Number> attributes) {
    const OpCall call = {.row = &ops::RowOf(row),
                         .compute = inputs.back().dtype,
                         .outputs = outputs,
                         .inputs = inputs,
                         .attributes = attributes};
    if (absl::Status status = ops::CheckCall(call); !status.ok()) return status;
    return device_.Run(*library_, call);
  }

  void Check(DType type, DType target, const std::vector<Shape>& shapes, int64_t steps, int64_t classes) {
    const auto batch = static_cast<int64_t>(shapes.size());
    TestTensor probs(type, {steps, batch, classes}), lengths(DType::kInt64, {batch, 3});
    Labels all;
    size_t most = 0;
    for (int64_t n = 0; n < batch; ++n) {
      const Shape& shape = shapes[static_cast<size_t>(n)];
      lengths.Set(n * 3, static_cast<Exact>(shape.steps));
      lengths.Set(n * 3 + 1, static_cast<Exact>(shape.labels.size()));
      lengths.Set(n * 3 + 2, static_cast<Exact>(all.size()));
      all.insert(all.end(), shape.labels.begin(), shape.labels.end());
      most = std::max(most, shape.labels.size());
    }
    TestTensor targets(target, {static_cast<int64_t>(all.size())});
    for (size_t i = 0; i < all.size(); ++i) targets.Set(static_cast<int64_t>(i), static_cast<Exact>(all[i]));
    for (int64_t i = 0; i < probs.numel(); i += classes) {
      TestTensor logits(DType::kFloat64, {classes});
      Randomise(logits, random_, {.low = -2, .high = 2});
      Exact sum = 0;
      for (int64_t c = 0; c < classes; ++c) sum += std::exp(logits.At(c));
      for (int64_t c = 0; c < classes; ++c) probs.Set(i + c, logits.At(c) - std::log(sum));
    }
    TestTensor loss(type, {batch}), alpha(type, {batch, steps, 2 * static_cast<int64_t>(most) + 1});
    TestTensor gradient(type, {batch}), dx(type, {steps, batch, classes});
    for (int64_t n = 0; n < batch; ++n) gradient.Set(n, static_cast<Exact>(n % 3) - 2);
    absl::Status status =
        Run("_ctc_loss", {loss.operand(), alpha.operand()},
            {probs.operand(), targets.operand(), lengths.operand()}, {ops::Number::Integer(kBlank)});
    ASSERT_TRUE(status.ok()) << status;
    status = Run("_ctc_loss_backward", {dx.operand()},
                 {gradient.operand(), probs.operand(), targets.operand(), lengths.operand(), loss.operand(),
                  alpha.operand()},
                 {ops::Number::Integer(kBlank), ops::Number::Integer(1)});
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_TRUE(loss.MarginsIntact() && alpha.MarginsIntact() && dx.MarginsIntact());
    for (int64_t n = 0; n < batch; ++n) Compare(shapes[static_cast<size_t>(n)], n, probs, loss, gradient, dx);
  }

  // Goes through all paths of a sequence.
  static void Compare(const Shape& shape, int64_t n, const TestTensor& probs, const TestTensor& loss,
                      const TestTensor& gradient, const TestTensor& dx) {
    const int64_t classes = probs.sizes()[2];
    Exact total = 0;
    std::vector<Exact> through(static_cast<size_t>(shape.steps * classes));
    Labels path(static_cast<size_t>(shape.steps));
    int64_t paths = 1;
    for (int64_t t = 0; t < shape.steps; ++t) paths *= classes;
    for (int64_t p = 0; p < paths; ++p) {
      Exact logarithm = 0;
      int64_t rest = p;
      for (int64_t t = 0; t < shape.steps; ++t, rest /= classes) {
        path[static_cast<size_t>(t)] = rest % classes;
        logarithm += probs.AtIndex({t, n, rest % classes});
      }
      if (CollapseOf(path) != shape.labels) continue;
      total += std::exp(logarithm);
      for (size_t t = 0; t < path.size(); ++t)
        through[t * static_cast<size_t>(classes) + static_cast<size_t>(path[t])] += std::exp(logarithm);
    }
    const double tolerance = probs.dtype() == DType::kFloat64 ? 1e-11 : 2e-5;
    if (total == 0) {
      EXPECT_EQ(static_cast<double>(loss.At(n)), INFINITY) << "sequence " << n;
    } else {
      EXPECT_NEAR(static_cast<double>(loss.At(n)), static_cast<double>(-std::log(total)), tolerance) << n;
    }
    for (int64_t t = 0; t < probs.sizes()[0]; ++t) {
      for (int64_t c = 0; c < classes; ++c) {
        Exact want = 0;
        if (t < shape.steps && total > 0) {
          const Exact share = through[static_cast<size_t>(t * classes + c)] / total;
          want = (std::exp(probs.AtIndex({t, n, c})) - share) * gradient.At(n);
        }
        ASSERT_NEAR(static_cast<double>(dx.AtIndex({t, n, c})), static_cast<double>(want), tolerance)
            << "sequence " << n << " step " << t << " class " << c;
      }
    }
  }

  std::mt19937_64 random_{4};
};

TEST_F(CtcTest, AgreesWithAllAlignments) {
  // Repeated labels, no labels, as many labels as steps, too many, no steps.
  const std::vector<Shape> shapes = {{6, {0, 2}}, {6, {2, 2, 0}}, {5, {}},  {3, {0, 2, 0}}, {2, {0, 2, 0}},
                                     {0, {}},     {0, {2}},       {3, {2}}, {6, {3, 3, 3}}, {5, {3, 3, 3}}};
  for (const DType type : {DType::kFloat32, DType::kFloat64})
    for (const DType target : {DType::kInt64, DType::kInt32}) Check(type, target, shapes, 6, 4);
  Check(DType::kFloat32, DType::kInt64, {{4, {}}, {2, {}}}, 4, 3);
}

// Whatever the lengths, positions and labels are, kernels stay within their operands.
TEST_F(CtcTest, WrongLengthsAndLabelsStayInside) {
  constexpr int64_t kNumbers[] = {-1, 0, 1, 2, 3, 4, 7, 1000, INT64_MAX, INT64_MIN, INT64_MAX - 1};
  const auto any = [&] { return static_cast<Exact>(kNumbers[random_() % std::size(kNumbers)]); };
  for (int round = 0; round < 300; ++round) {
    const int64_t states = 1 + static_cast<int64_t>(random_() % 6),
                  labels = static_cast<int64_t>(random_() % 4);
    TestTensor probs(DType::kFloat32, {4, 2, 3}), targets(DType::kInt64, {labels}),
        shapes(DType::kInt64, {2, 3});
    TestTensor loss(DType::kFloat32, {2}), alpha(DType::kFloat32, {2, 4, states}),
        dx(DType::kFloat32, {4, 2, 3});
    Randomise(probs, random_, {.low = -3, .high = 0});
    for (int64_t i = 0; i < labels; ++i) targets.Set(i, any());
    for (int64_t i = 0; i < 6; ++i) shapes.Set(i, any());
    ASSERT_TRUE(Run("_ctc_loss", {loss.operand(), alpha.operand()},
                    {probs.operand(), targets.operand(), shapes.operand()}, {ops::Number::Integer(kBlank)})
                    .ok());
    ASSERT_TRUE(Run("_ctc_loss_backward", {dx.operand()},
                    {loss.operand(), probs.operand(), targets.operand(), shapes.operand(), loss.operand(),
                     alpha.operand()},
                    {ops::Number::Integer(kBlank), ops::Number::Integer(0)})
                    .ok());
    ASSERT_TRUE(loss.MarginsIntact() && alpha.MarginsIntact() && dx.MarginsIntact()) << "round " << round;
  }
}

TEST_F(CtcTest, ABlankThatIsNoClassIsRefused) {
  TestTensor probs(DType::kFloat32, {4, 2, 3}), targets(DType::kInt64, {4}), shapes(DType::kInt64, {2, 3});
  TestTensor loss(DType::kFloat32, {2}), alpha(DType::kFloat32, {2, 4, 5});
  for (const int64_t blank : {int64_t{-1}, int64_t{3}, INT64_MAX}) {
    EXPECT_EQ(Run("_ctc_loss", {loss.operand(), alpha.operand()},
                  {probs.operand(), targets.operand(), shapes.operand()}, {ops::Number::Integer(blank)})
                  .code(),
              absl::StatusCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace xpud::kernels
