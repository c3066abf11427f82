// The negative log likelihood loss and its gradient, compared with double references: over reductions, types,
// layouts, and targets that are ignored or out of range.
#include <cmath>

#include "gtest/gtest.h"
#include "kernels/testing/device_test_fixture.h"
#include "kernels/testing/gpu.h"
#include "kernels/testing/tensor.h"

namespace xpud::kernels {
namespace {

using ops::DType;

constexpr int64_t kIgnore = -100;
enum Reduction : int64_t { kNone, kMean, kSum };

double UnitOf(DType type) {
  return type == DType::kFloat64   ? 1e-12
         : type == DType::kFloat32 ? 2e-5
         : type == DType::kFloat16 ? 2e-3
                                   : 1e-2;
}

class NllTest : public DeviceTest {
 protected:
  struct Case {
    int64_t rows = 7, classes = 5;
    DType type = DType::kFloat32, index = DType::kInt64;
    bool weighted = false, strided = false;
    int64_t wrong = -1;  // this row's target is out of range
    int64_t wrong_target = 0;
    bool all_ignored = false;
  };

  static std::string Name(const Case& c, int64_t reduction) {
    return std::to_string(c.rows) + "x" + std::to_string(c.classes) + " " +
           std::string(ops::Info(c.type).name) + "/" + std::string(ops::Info(c.index).name) +
           (c.weighted ? " weighted" : "") + (c.strided ? " strided" : "") + " reduction " +
           std::to_string(reduction);
  }

  // The tensors of a case. If strided, every other element is a gap.
  struct Tensors {
    explicit Tensors(const Case& c)
        : logp(c.type, {c.rows, c.classes}, {c.classes * (c.strided ? 3 : 1), c.strided ? 2 : 1}),
          target(c.index, {c.rows}, {c.strided ? 2 : 1}),
          weight(c.type, {c.classes}, {c.strided ? 3 : 1}) {}
    TestTensor logp, target, weight;
  };

  void Fill(const Case& c, Tensors& t) {
    Randomise(t.logp, random_, {.low = -6, .high = 0});
    Randomise(t.weight, random_, {.low = 0.2, .high = 2});
    for (int64_t n = 0; n < c.rows; ++n) {
      const bool ignored = c.all_ignored || random_() % 5 == 0;
      t.target.Set(n, n == c.wrong ? c.wrong_target
                      : ignored || c.classes == 0
                          ? kIgnore
                          : static_cast<int64_t>(random_() % static_cast<uint64_t>(c.classes)));
    }
  }

  static bool Counts(const Case& c, Exact target) {
    return target != kIgnore && target >= 0 && target < static_cast<Exact>(c.classes);
  }
  static Exact WeightAt(const Case& c, const Tensors& t, int64_t n) {
    const auto target = static_cast<int64_t>(t.target.At(n));
    if (!Counts(c, target)) return 0;
    return c.weighted ? t.weight.At(target) : 1;
  }
  static Exact TotalOf(const Case& c, const Tensors& t) {
    Exact total = 0;
    for (int64_t n = 0; n < c.rows; ++n) total += WeightAt(c, t, n);
    return total;
  }

  static void ExpectNear(Exact got, Exact want, DType type, const std::string& what) {
    if (std::isnan(want)) {
      EXPECT_TRUE(std::isnan(got)) << what;
    } else {
      EXPECT_NEAR(static_cast<double>(got), static_cast<double>(want),
                  UnitOf(type) * (1 + std::fabs(static_cast<double>(want))))
          << what;
    }
  }

  static void ExpectError(const Case& c, uint64_t error, bool nothing_to_do = false) {
    const uint64_t wanted = c.wrong < 0 || nothing_to_do
                                ? 0
                                : static_cast<uint64_t>(c.wrong_target) << 8 |
                                      static_cast<uint64_t>(DeviceError::kIndexOutOfRange);
    EXPECT_EQ(error, wanted);
  }

  void CheckForward(const Case& c, int64_t reduction) {
    SCOPED_TRACE(Name(c, reduction));
    Tensors t(c);
    Fill(c, t);
    TestTensor loss(c.type, reduction == kNone ? std::vector<int64_t>{c.rows} : std::vector<int64_t>{},
                    reduction == kNone ? std::vector<int64_t>{c.strided ? 2 : 1} : std::vector<int64_t>{});
    TestTensor total(c.type, {});
    Operand absent;
    absent.present = false;
    const Operand outputs[] = {loss.operand(), total.operand()};
    const Operand inputs[] = {t.logp.operand(), t.target.operand(), c.weighted ? t.weight.operand() : absent};
    const ops::Number attributes[] = {ops::Number::Integer(reduction), ops::Number::Integer(kIgnore)};
    uint64_t error = 0;
    const OpCall call{.row = &ops::RowOf("nll_loss_forward"),
                      .compute = c.type,
                      .outputs = outputs,
                      .inputs = inputs,
                      .attributes = attributes,
                      .error_word = &error};
    const absl::Status status = device_.Run(*library_, call);
    ASSERT_TRUE(status.ok()) << status;
    ExpectError(c, error);
    Exact sum = 0;
    for (int64_t n = 0; n < c.rows; ++n) {
      const Exact weight = WeightAt(c, t, n);
      const Exact one = weight == 0 ? 0 : -weight * t.logp.AtIndex({n, static_cast<int64_t>(t.target.At(n))});
      if (reduction == kNone) ExpectNear(loss.At(n), one, c.type, "row " + std::to_string(n));
      sum += one;
    }
    const Exact weight = TotalOf(c, t);
    ExpectNear(total.At(0), reduction == kNone ? 0 : weight, c.type, "total weight");
    if (reduction != kNone) ExpectNear(loss.At(0), reduction == kMean ? sum / weight : sum, c.type, "loss");
    EXPECT_TRUE(loss.MarginsIntact() && total.MarginsIntact());
  }

  void CheckBackward(const Case& c, int64_t reduction) {
    SCOPED_TRACE(Name(c, reduction));
    Tensors t(c);
    Fill(c, t);
    const bool each = reduction == kNone;
    TestTensor gradient(c.type, each ? std::vector<int64_t>{c.rows} : std::vector<int64_t>{},
                        each ? std::vector<int64_t>{c.strided ? 2 : 1} : std::vector<int64_t>{});
    Randomise(gradient, random_, {.low = -2, .high = 2});
    TestTensor dx(c.type, {c.rows, c.classes}, {c.classes * (c.strided ? 2 : 1), c.strided ? 2 : 1});
    for (int64_t i = 0; i < dx.numel(); ++i) dx.Set(i, 7);
    Operand absent;
    absent.present = false;
    const Operand output = dx.operand();
    const Operand inputs[] = {gradient.operand(), t.logp.operand(), t.target.operand(),
                              c.weighted ? t.weight.operand() : absent};
    const ops::Number attributes[] = {ops::Number::Integer(reduction), ops::Number::Integer(kIgnore)};
    uint64_t error = 0;
    const OpCall call{.row = &ops::RowOf("nll_loss_backward"),
                      .compute = c.type,
                      .outputs = {&output, 1},
                      .inputs = inputs,
                      .attributes = attributes,
                      .error_word = &error};
    const absl::Status status = device_.Run(*library_, call);
    ASSERT_TRUE(status.ok()) << status;
    ExpectError(c, error, c.classes == 0);
    const Exact total = reduction == kMean ? TotalOf(c, t) : 1;
    for (int64_t n = 0; n < c.rows; ++n) {
      for (int64_t k = 0; k < c.classes; ++k) {
        const bool here = Counts(c, t.target.At(n)) && t.target.At(n) == static_cast<Exact>(k);
        const Exact want = here ? -WeightAt(c, t, n) * gradient.At(each ? n : 0) / total : 0;
        const Exact got = dx.AtIndex({n, k});
        if (std::fabs(got - want) <= UnitOf(c.type) * (1e-3 + std::fabs(want))) continue;
        FAIL() << "at " << n << ", " << k << ": got " << static_cast<double>(got) << ", want "
               << static_cast<double>(want);
      }
    }
    EXPECT_TRUE(dx.MarginsIntact());
  }

  void Check(const Case& c) {
    for (const int64_t reduction : {kNone, kMean, kSum}) {
      CheckForward(c, reduction);
      CheckBackward(c, reduction);
    }
  }

  std::mt19937_64 random_{7};
};

TEST_F(NllTest, EveryTypeAgreesWithTheReference) {
  for (const DType type : {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBFloat16}) {
    for (const DType index : {DType::kInt64, DType::kInt32}) {
      for (const bool weighted : {false, true}) Check({.type = type, .index = index, .weighted = weighted});
    }
  }
}

TEST_F(NllTest, EveryShapeAgreesWithTheReference) {
  for (const auto& [rows, classes] : {std::pair<int64_t, int64_t>{1, 1},
                                      {1, 3000},
                                      {300, 2},
                                      {33, 129},
                                      {4096, 3},
                                      {4097, 10},
                                      {20000, 4}}) {
    for (const bool strided : {false, true})
      Check({.rows = rows, .classes = classes, .weighted = strided, .strided = strided});
  }
}

TEST_F(NllTest, TargetsOutOfRangeAreReportedAndSkipped) {
  for (const int64_t target : {int64_t{5}, int64_t{-1}, int64_t{1} << 40}) {
    for (const int64_t row : {0, 3, 6}) Check({.weighted = true, .wrong = row, .wrong_target = target});
  }
  Check({.rows = 9000, .wrong = 8192, .wrong_target = 5});
  Check({.classes = 0, .weighted = true, .wrong = 2, .wrong_target = 0});
}

TEST_F(NllTest, MeanOfNothingIsNan) {
  for (const int64_t rows : {int64_t{0}, int64_t{1}, int64_t{5}, int64_t{9000}})
    Check({.rows = rows, .all_ignored = true});
}

TEST_F(NllTest, ResultDoesNotDependOnTheNumberOfWorkers) {
  KernelLibrary::Options options = device_.options();
  options.workers = 17;
  const auto many = *KernelLibrary::Create(options);
  const Case c{.rows = 50000, .classes = 10, .weighted = true};
  Tensors t(c);
  Fill(c, t);
  TestTensor loss[2] = {{c.type, {}}, {c.type, {}}};
  TestTensor total(c.type, {});
  for (auto [library, out] : {std::pair{library_.get(), &loss[0]}, {many.get(), &loss[1]}}) {
    const Operand outputs[] = {out->operand(), total.operand()};
    const Operand inputs[] = {t.logp.operand(), t.target.operand(), t.weight.operand()};
    const ops::Number attributes[] = {ops::Number::Integer(kMean), ops::Number::Integer(kIgnore)};
    uint64_t error = 0;
    ASSERT_TRUE(device_
                    .Run(*library, {.row = &ops::RowOf("nll_loss_forward"),
                                    .compute = c.type,
                                    .outputs = outputs,
                                    .inputs = inputs,
                                    .attributes = attributes,
                                    .error_word = &error})
                    .ok());
    EXPECT_GT(device_.groups(), 2u);
  }
  EXPECT_EQ(loss[0].At(0), loss[1].At(0));
}

// Planes [N, C, P] are rows [N * P, C] in another order of memory.
TEST_F(NllTest, PlanesAgreeWithRows) {
  constexpr int64_t kImages = 3, kClasses = 6, kPositions = 1500;
  for (const bool last : {false, true}) {
    for (const int64_t reduction : {kNone, kMean, kSum}) {
      for (const int64_t wrong : {int64_t{0}, kClasses + 2}) {
        SCOPED_TRACE(std::to_string(reduction) + (last ? " channels last" : ""));
        const Case c = {.rows = kImages * kPositions, .classes = kClasses, .weighted = reduction != kSum};
        Tensors rows(c);
        Fill(c, rows);
        rows.target.Set(kPositions + 7, static_cast<Exact>(wrong));
        const std::vector<int64_t> sizes = {kImages, kClasses, kPositions};
        const std::vector<int64_t> strides = last
                                                 ? std::vector<int64_t>{kClasses * kPositions, 1, kClasses}
                                                 : std::vector<int64_t>{kClasses * kPositions, kPositions, 1};
        TestTensor logp(c.type, sizes, strides), target(c.index, {kImages, kPositions}),
            dx(c.type, sizes, strides);
        const auto element = [&](int64_t row, int64_t k) {
          return (row / kPositions * kClasses + k) * kPositions + row % kPositions;
        };
        for (int64_t n = 0; n < c.rows; ++n) {
          target.Set(n, rows.target.At(n));
          for (int64_t k = 0; k < kClasses; ++k) logp.Set(element(n, k), rows.logp.AtIndex({n, k}));
        }
        const bool each = reduction == kNone;
        TestTensor loss(c.type, each ? std::vector<int64_t>{c.rows} : std::vector<int64_t>{});
        TestTensor losses(c.type, each ? std::vector<int64_t>{kImages, kPositions} : std::vector<int64_t>{});
        TestTensor gradient = loss, gradients = losses, total(c.type, {}), totals(c.type, {});
        for (int64_t i = 0; i < loss.numel(); ++i)
          gradient.Set(i, static_cast<Exact>(i % 9 - 3)), gradients.Set(i, static_cast<Exact>(i % 9 - 3));
        TestTensor wanted(c.type, {c.rows, c.classes});
        const uint64_t code = wrong < kClasses ? 0
                                               : static_cast<uint64_t>(wrong) << 8 |
                                                     static_cast<uint64_t>(DeviceError::kIndexOutOfRange);
        const auto run = [&](const char* row, const std::vector<Operand>& outs, std::vector<Operand> ins) {
          ins.push_back(rows.weight.operand());
          ins.back().present = c.weighted;
          const ops::Number attributes[] = {ops::Number::Integer(reduction), ops::Number::Integer(kIgnore)};
          uint64_t error = 0;
          const absl::Status status = device_.Run(*library_, {.row = &ops::RowOf(row),
                                                              .compute = c.type,
                                                              .outputs = outs,
                                                              .inputs = ins,
                                                              .attributes = attributes,
                                                              .error_word = &error});
          EXPECT_TRUE(status.ok()) << status;
          EXPECT_EQ(error, code);
        };
        run("nll_loss_forward", {loss.operand(), total.operand()},
            {rows.logp.operand(), rows.target.operand()});
        run("nll_loss2d_forward", {losses.operand(), totals.operand()}, {logp.operand(), target.operand()});
        for (int64_t i = 0; i < loss.numel(); ++i) ASSERT_EQ(losses.At(i), loss.At(i)) << i;
        EXPECT_EQ(totals.At(0), total.At(0));
        run("nll_loss_backward", {wanted.operand()},
            {gradient.operand(), rows.logp.operand(), rows.target.operand()});
        run("nll_loss2d_backward", {dx.operand()}, {gradients.operand(), logp.operand(), target.operand()});
        for (int64_t n = 0; n < c.rows; ++n)
          for (int64_t k = 0; k < kClasses; ++k) ASSERT_EQ(dx.At(element(n, k)), wanted.AtIndex({n, k})) << n;
        EXPECT_TRUE(dx.MarginsIntact() && losses.MarginsIntact() && totals.MarginsIntact());
      }
    }
  }
}

TEST_F(NllTest, CompilesForGpus) {
  for (const DType type : {DType::kFloat32, DType::kBFloat16}) {
    for (const int64_t reduction : {kNone, kMean, kSum}) {
      const Case c{.rows = 9000, .classes = 10, .type = type, .weighted = true};
      Tensors t(c);
      TestTensor scalar(type, {}), each(type, {c.rows}), dx(type, {c.rows, c.classes});
      const Operand loss = reduction == kNone ? each.operand() : scalar.operand();
      const Operand outputs[] = {loss, scalar.operand()}, output = dx.operand();
      const Operand forward[] = {t.logp.operand(), t.target.operand(), t.weight.operand()};
      const Operand backward[] = {loss, t.logp.operand(), t.target.operand(), t.weight.operand()};
      const ops::Number attributes[] = {ops::Number::Integer(reduction), ops::Number::Integer(kIgnore)};
      EXPECT_EQ(CompileForGpus({.row = &ops::RowOf("nll_loss_forward"),
                                .compute = type,
                                .outputs = outputs,
                                .inputs = forward,
                                .attributes = attributes}),
                absl::OkStatus());
      EXPECT_EQ(CompileForGpus({.row = &ops::RowOf("nll_loss_backward"),
                                .compute = type,
                                .outputs = {&output, 1},
                                .inputs = backward,
                                .attributes = attributes}),
                absl::OkStatus());
    }
  }
}

}  // namespace
}  // namespace xpud::kernels
