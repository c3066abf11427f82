// Reductions of several tensors beside plain loops, in every loop order.
#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/testing/device_test_fixture.h"
#include "kernels/testing/tensor.h"
#include "proto/ops/check.h"

namespace xpud::kernels {
namespace {

using ops::DType;
using Sizes = std::vector<int64_t>;

struct Shape {
  const char* name;
  Sizes sizes, strides;       // of the first two inputs
  std::vector<bool> reduced;  // its dimensions
  Sizes statistics;           // sizes of the third and the fourth
};

const Shape kShapes[] = {
    {"images", {3, 5, 7, 9}, {315, 63, 9, 1}, {true, false, true, true}, {1, 5, 1, 1}},
    {"channels last", {3, 5, 7, 9}, {315, 1, 45, 5}, {true, false, true, true}, {1, 5, 1, 1}},
    {"large images", {4, 3, 50, 100}, {15000, 5000, 100, 1}, {true, false, true, true}, {1, 3, 1, 1}},
    {"many channels last", {4, 72, 9, 10}, {6480, 1, 720, 72}, {true, false, true, true}, {1, 72, 1, 1}},
    {"cut into parts", {70000, 16}, {16, 1}, {true, false}, {1, 16}},
    {"long rows", {2, 300000}, {300000, 1}, {false, true}, {2, 1}},
    {"groups", {2, 3, 4, 80}, {960, 320, 80, 1}, {false, false, false, true}, {2, 3, 1, 1}},
    {"groups last", {2, 3, 16, 20}, {960, 16, 1, 48}, {false, false, false, true}, {2, 3, 1, 1}},
    {"strided", {5, 67}, {134, 2}, {false, true}, {5, 1}},
    {"expanded", {5, 67}, {0, 0}, {false, true}, {5, 1}},
    {"statistics along the reduced dimension", {5, 67}, {67, 1}, {false, true}, {5, 67}},
    {"statistics of columns", {6, 40}, {40, 1}, {true, false}, {6, 1}},
    {"nothing to reduce", {3, 0}, {1, 1}, {false, true}, {3, 1}},
};

class JointReduceTest : public DeviceTest {
 protected:
  static int64_t IndexIn(const Sizes& sizes, const Sizes& at) {
    int64_t index = 0;
    for (size_t d = 0; d < sizes.size(); ++d) index = index * sizes[d] + (sizes[d] == 1 ? 0 : at[d]);
    return index;
  }

  absl::Status Run(const ops::Row& row, DType compute, const std::vector<Operand>& outs,
                   const std::vector<Operand>& ins) {
    const OpCall call{.row = &row, .compute = compute, .outputs = outs, .inputs = ins, .attributes = {}};
    if (absl::Status status = ops::CheckCall(call); !status.ok()) return status;
    return device_.Run(*library_, call);
  }

  void Check(const Shape& shape, DType type) {
    SCOPED_TRACE(std::string(shape.name) + " " + std::string(ops::Info(type).name));
    const DType sums = type == DType::kFloat64 ? type : DType::kFloat32;
    TestTensor g(type, shape.sizes, shape.strides), x(type, shape.sizes, shape.strides);
    TestTensor mean(sums, shape.statistics), rstd(sums, shape.statistics);
    for (TestTensor* const tensor : {&g, &x, &mean, &rstd})
      Randomise(*tensor, random_, {.low = -1, .high = 2});
    Sizes kept = shape.sizes;
    for (size_t d = 0; d < kept.size(); ++d)
      if (shape.reduced[d]) kept[d] = 1;
    TestTensor sum(sums, kept), product(sums, kept);
    const absl::Status status = Run(ops::RowOf("xpud::norm_sums"), sums, {sum.operand(), product.operand()},
                                    {g.operand(), x.operand(), mean.operand(), rstd.operand()});
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_TRUE(sum.MarginsIntact() && product.MarginsIntact());
    struct Want {
      Exact sum = 0, product = 0, magnitude = 0;
    };
    std::vector<Want> want(static_cast<size_t>(sum.numel()));
    for (int64_t i = 0; i < g.numel(); ++i) {
      Sizes at(shape.sizes.size());
      int64_t rest = i;
      for (size_t d = at.size(); d-- > 0; rest /= shape.sizes[d]) at[d] = rest % shape.sizes[d];
      const int64_t s = IndexIn(shape.statistics, at);
      Want& w = want[static_cast<size_t>(IndexIn(kept, at))];
      const Exact term = g.At(i) * (x.At(i) - mean.At(s)) * rstd.At(s);
      w.sum += g.At(i);
      w.product += term;
      w.magnitude += std::fabs(g.At(i)) + std::fabs(term);
    }
    const Exact unit = type == DType::kFloat64 ? 1e-13L : 3e-6L;
    for (int64_t i = 0; i < sum.numel(); ++i) {
      const Want& w = want[static_cast<size_t>(i)];
      ASSERT_LE(std::fabs(sum.At(i) - w.sum), unit * (w.magnitude + 1e-3L)) << i;
      ASSERT_LE(std::fabs(product.At(i) - w.product), unit * (w.magnitude + 1e-3L)) << i;
    }
  }

  std::mt19937_64 random_{8};
};

TEST_F(JointReduceTest, EveryLayoutAndType) {
  for (const Shape& shape : kShapes) {
    for (const DType type : {DType::kFloat32, DType::kFloat64, DType::kBFloat16, DType::kFloat16}) {
      Check(shape, type);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_F(JointReduceTest, SumsWeightedByAnotherInput) {
  TestTensor a(DType::kFloat32, {4, 6, 1}), b(DType::kFloat32, {4, 6, 1}), c(DType::kFloat16, {1, 6, 1});
  for (TestTensor* const tensor : {&a, &b, &c})
    for (int64_t i = 0; i < tensor->numel(); ++i) tensor->Set(i, static_cast<Exact>(i % 7 - 3));
  TestTensor p(DType::kFloat32, {4, 1, 1}), q(DType::kFloat32, {4, 1, 1});
  const absl::Status status = Run(ops::RowOf("xpud::weighted_sums"), DType::kFloat32,
                                  {p.operand(), q.operand()}, {a.operand(), b.operand(), c.operand()});
  ASSERT_TRUE(status.ok()) << status;
  for (int64_t n = 0; n < 4; ++n) {
    Exact want_p = 0, want_q = 0;
    for (int64_t i = 0; i < 6; ++i) want_p += a.At(n * 6 + i) * c.At(i), want_q += b.At(n * 6 + i) * c.At(i);
    EXPECT_EQ(p.At(n), want_p);
    EXPECT_EQ(q.At(n), want_q);
  }
}

// Arithmetic wraps around, so any cut of the elements gives the same bits.
TEST_F(JointReduceTest, DigestsAreThoseOfTheirFormulaAndDependOnKeyAndPosition) {
  const auto as_signed = [](uint64_t value) { return static_cast<int64_t>(value); };
  for (const int64_t n : {1, 5, 1000, 131072, 1000003}) {
    TestTensor a(DType::kInt64, {n}), low(DType::kInt64, {1}), high(DType::kInt64, {1});
    std::vector<uint64_t> values(static_cast<size_t>(n));
    for (int64_t i = 0; i < n; ++i) {
      values[static_cast<size_t>(i)] = random_();
      a.Set(i, static_cast<Exact>(as_signed(values[static_cast<size_t>(i)])));
    }
    const auto digest = [&](uint64_t key) {
      const Operand outs[] = {low.operand(), high.operand()}, ins[] = {a.operand()};
      const ops::Number number = ops::Number::Integer(as_signed(key));
      const OpCall call{.row = &ops::RowOf("xpud::digest"),
                        .compute = DType::kInt64,
                        .outputs = outs,
                        .inputs = ins,
                        .attributes = {&number, 1}};
      const absl::Status status = device_.Run(*library_, call);
      EXPECT_TRUE(status.ok()) << status;
      return std::pair{static_cast<int64_t>(low.At(0)), static_cast<int64_t>(high.At(0))};
    };
    const uint64_t key = random_();
    uint64_t p = 0, q = 0;
    for (uint64_t k = 0; k < values.size(); ++k) {
      const uint64_t first = (values[k] ^ (k + key) * 8530766624414626169u) * 7337363642784220325u;
      const uint64_t second = (values[k] + (k ^ key) * 7886979992578002847u) * 5028067176167664991u;
      p += first ^ (first >> 32 & 0xffffffff);
      q += second ^ (second >> 29 & 0x7ffffffff);
    }
    const auto found = digest(key);
    EXPECT_EQ(found, std::pair(as_signed(p), as_signed(q))) << n;
    EXPECT_NE(digest(key + 1).first, found.first) << "of another key";
    if (n == 1) continue;
    const Exact first = a.At(0);
    a.Set(0, a.At(n - 1));
    a.Set(n - 1, first);
    EXPECT_NE(digest(key).first, found.first) << "of the same values in another order";
    EXPECT_NE(digest(key).second, found.second);
  }
}

TEST_F(JointReduceTest, DifferencesAreCountedBitForBit) {
  for (const int64_t n : {1, 1000, 131072, 1000003}) {
    TestTensor a(DType::kInt64, {n}), b(DType::kInt64, {n}), out(DType::kInt64, {1});
    for (int64_t i = 0; i < n; ++i) {
      const auto value = static_cast<Exact>(static_cast<int64_t>(random_()));
      a.Set(i, value);
      b.Set(i, value);
    }
    const auto differences = [&] {
      const absl::Status status =
          Run(ops::RowOf("xpud::differences"), DType::kInt64, {out.operand()}, {a.operand(), b.operand()});
      EXPECT_TRUE(status.ok()) << status;
      return out.At(0);
    };
    EXPECT_EQ(differences(), 0);
    b.Set(n - 1, static_cast<Exact>(static_cast<int64_t>(b.At(n - 1)) ^ 1));
    EXPECT_EQ(differences(), 1);
    b.Set(0, static_cast<Exact>(static_cast<int64_t>(b.At(0)) ^ std::numeric_limits<int64_t>::min()));
    EXPECT_EQ(differences(), n == 1 ? 1 : 2);
  }
}

TEST_F(JointReduceTest, ShapesThatDoNotFitAreRefused) {
  TestTensor a(DType::kFloat32, {4, 6}), shorter(DType::kFloat32, {4, 5}), rank(DType::kFloat32, {6});
  TestTensor out(DType::kFloat32, {4, 1});
  for (const TestTensor* const other : {&shorter, &rank}) {
    EXPECT_EQ(Run(ops::RowOf("xpud::weighted_sums"), DType::kFloat32, {out.operand(), out.operand()},
                  {a.operand(), a.operand(), other->operand()})
                  .code(),
              absl::StatusCode::kInvalidArgument);
  }
}

TEST_F(JointReduceTest, ResultDoesNotDependOnTheNumberOfWorkers) {
  KernelLibrary::Options options = device_.options();
  options.workers = 17;
  const auto many = *KernelLibrary::Create(options);
  TestTensor a(DType::kFloat32, {500000, 3}), c(DType::kFloat32, {1, 3});
  Randomise(a, random_);
  Randomise(c, random_);
  TestTensor first(DType::kFloat32, {1, 3}), second(DType::kFloat32, {1, 3}), other(DType::kFloat32, {1, 3});
  for (auto [library, out] : {std::pair{library_.get(), &first}, {many.get(), &second}}) {
    const Operand outs[] = {out->operand(), other.operand()}, ins[] = {a.operand(), a.operand(), c.operand()};
    ASSERT_TRUE(device_
                    .Run(*library, {.row = &ops::RowOf("xpud::weighted_sums"),
                                    .compute = DType::kFloat32,
                                    .outputs = outs,
                                    .inputs = ins,
                                    .attributes = {}})
                    .ok());
    EXPECT_GT(device_.groups(), 2u);
  }
  for (int64_t i = 0; i < 3; ++i) EXPECT_EQ(first.At(i), second.At(i));
}

}  // namespace
}  // namespace xpud::kernels
