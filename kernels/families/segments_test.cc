// Reductions of segments beside a plain loop: types, layouts, indices, weights, padding; and bounds and
// indices that are out of range.
#include <limits>
#include <string_view>

#include "gtest/gtest.h"
#include "kernels/testing/device_test_fixture.h"
#include "kernels/testing/gpu.h"
#include "kernels/testing/tensor.h"

namespace xpud::kernels {
namespace {

using ops::DType;
using Sizes = std::vector<int64_t>;

constexpr std::string_view kRows[] = {"xpud::segment_sum", "xpud::segment_prod", "xpud::segment_max",
                                      "xpud::segment_min", "xpud::segment_argmax"};

class SegmentsTest : public DeviceTest {
 protected:
  struct Case {
    int64_t rows = 9, columns = 5;
    Sizes begins = {0, 4, 4, 1}, ends = {4, 4, 20, 3};
    int64_t positions = 20;
    DType type = DType::kFloat32, index_type = DType::kInt64, begins_type = DType::kInt64;
    bool indexed = true, weighted = false, strided = false;
    int64_t padding = -1;
    int64_t wrong = -1;  // this entry of the index is 99
  };
  struct Tensors {
    TestTensor out, data, begins, ends, index, weights;
  };

  static DType OutputOf(std::string_view row, DType type) { return row == kRows[4] ? DType::kInt64 : type; }

  // Whole numbers, so that sums and products are exact.
  Tensors Make(std::string_view row, const Case& c) {
    const auto count = static_cast<int64_t>(c.begins.size());
    const int64_t step = c.strided ? 2 : 1;
    Tensors t{TestTensor(OutputOf(row, c.type), {count, c.columns}, {c.columns * step, step}),
              TestTensor(c.type, {c.rows, c.columns}, {c.strided ? 1 : c.columns, c.strided ? c.rows : 1}),
              TestTensor(c.begins_type, {count}, {step}),
              TestTensor(DType::kInt64, {count}),
              TestTensor(c.index_type, {c.positions}, {step}),
              TestTensor(c.type, {c.positions}, {step})};
    const bool factor = row == kRows[1], positive = c.type == DType::kUInt8;
    for (int64_t i = 0; i < t.data.numel(); ++i) {
      const auto number = static_cast<Exact>(random_() % (factor ? 2 : 4));
      t.data.Set(i, factor ? (positive ? 1 : number * 2 - 1) : positive ? number : number - 1);
    }
    for (int64_t i = 0; i < t.out.numel(); ++i) t.out.Set(i, 7);
    for (int64_t b = 0; b < count; ++b) {
      t.begins.Set(b, static_cast<Exact>(c.begins[static_cast<size_t>(b)]));
      t.ends.Set(b, static_cast<Exact>(c.ends[static_cast<size_t>(b)]));
    }
    for (int64_t n = 0; n < c.positions; ++n) {
      t.index.Set(n, n == c.wrong ? 99 : static_cast<Exact>(random_() % static_cast<uint64_t>(c.rows)));
      t.weights.Set(n, static_cast<Exact>(random_() % 3));
    }
    return t;
  }

  // The result of one column of a segment; `kept` if it has no rows.
  Exact Reduce(std::string_view row, const Case& c, const Tensors& t, size_t segment, int64_t column,
               Exact kept) {
    bool any = false;
    Exact state = 0, position = 0;
    for (int64_t n = c.begins[segment]; n < c.ends[segment]; ++n) {
      const int64_t at = c.indexed ? static_cast<int64_t>(t.index.At(n)) : n;
      if (at < 0 || at >= c.rows || at == c.padding) continue;
      const Exact element = t.data.AtIndex({at, column}) * (c.weighted ? t.weights.At(n) : 1);
      const bool first = !any;
      any = true;
      if (row == kRows[0]) state = first ? element : state + element;
      if (row == kRows[1]) state = first ? element : state * element;
      if (row == kRows[3]) state = first ? element : std::min(state, element);
      if (row == kRows[2] || row == kRows[4]) {
        if (first || element > state) position = static_cast<Exact>(at);
        state = first ? element : std::max(state, element);
      }
    }
    return !any ? kept : row == kRows[4] ? position : state;
  }

  absl::Status Run(std::string_view row, const Case& c, const Tensors& t) {
    const Operand output = t.out.operand();
    Operand absent;
    absent.present = false;
    const Operand inputs[] = {t.data.operand(), t.begins.operand(), t.ends.operand(),
                              c.indexed ? t.index.operand() : absent,
                              c.weighted ? t.weights.operand() : absent};
    const ops::Number padding = ops::Number::Integer(c.padding);
    error_ = 0;
    return device_.Run(*library_, {.row = &ops::RowOf(row),
                                   .compute = c.type,
                                   .outputs = {&output, 1},
                                   .inputs = inputs,
                                   .attributes = {&padding, 1},
                                   .error_word = &error_});
  }

  void Check(const Case& c) {
    for (const std::string_view row : kRows) Check(row, c);
  }
  void Check(std::string_view row, const Case& c) {
    SCOPED_TRACE(std::string(row) + " " + std::string(ops::Info(c.type).name));
    Tensors t = Make(row, c);
    std::vector<Exact> want;
    for (int64_t i = 0; i < t.out.numel(); ++i)
      want.push_back(Reduce(row, c, t, static_cast<size_t>(i / c.columns), i % c.columns, t.out.At(i)));
    const absl::Status status = Run(row, c, t);
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_EQ(error_, c.wrong < 0 ? 0u : 99u << 8 | static_cast<uint64_t>(DeviceError::kIndexOutOfRange));
    for (int64_t i = 0; i < t.out.numel(); ++i)
      ASSERT_EQ(t.out.At(i), want[static_cast<size_t>(i)]) << "element " << i;
    EXPECT_TRUE(t.out.MarginsIntact());
  }

  std::mt19937_64 random_{3};
  uint64_t error_ = 0;
};

TEST_F(SegmentsTest, EveryType) {
  for (int t = 0; t < ops::kNumDTypes; ++t) {
    const auto type = static_cast<DType>(t);
    if (!ops::Contains(ops::RowOf(kRows[0]).dtypes, type)) continue;
    Check({.type = type});
    Check({.columns = 37,
           .type = type,
           .index_type = DType::kInt32,
           .begins_type = DType::kInt32,
           .weighted = true});
  }
}

TEST_F(SegmentsTest, EveryForm) {
  for (const bool strided : {false, true}) {
    Check({.strided = strided});
    Check({.columns = 40, .strided = strided});
    Check({.columns = 1, .weighted = true, .strided = strided});
    Check({.columns = 33, .strided = strided, .padding = 3});
    Check({.rows = 20, .columns = 20, .indexed = false, .strided = strided});
    Check({.rows = 1, .padding = 0});
  }
}

TEST_F(SegmentsTest, LargeWorkIsCut) {
  Case c{.rows = 500, .columns = 64, .begins = {}, .ends = {}, .positions = 30000};
  for (int64_t b = 0; b < 3000; ++b) {
    c.begins.push_back(b * 10);
    c.ends.push_back(b * 10 + static_cast<int64_t>(random_() % 11));
  }
  Check(c);
  EXPECT_GT(device_.groups(), 1u);
}

TEST_F(SegmentsTest, IndicesOutOfRangeAreReportedAndSkipped) {
  Check({.wrong = 0});
  Check({.columns = 40, .wrong = 19});
}

TEST_F(SegmentsTest, BoundsOutOfRangeAreReportedAndTheirSegmentsKeepTheirValues) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max(), kLeast = std::numeric_limits<int64_t>::min();
  for (const int64_t bad : {int64_t{21}, int64_t{-1}, kMost, kLeast, int64_t{1} << 40}) {
    for (const bool begins : {true, false}) {
      Case c{.columns = 18};
      (begins ? c.begins : c.ends)[2] = bad;
      Tensors t = Make(kRows[0], c);
      ASSERT_TRUE(Run(kRows[0], c, t).ok());
      EXPECT_EQ(error_,
                static_cast<uint64_t>(bad) << 8 | static_cast<uint64_t>(DeviceError::kIndexOutOfRange));
      EXPECT_TRUE(t.out.MarginsIntact());
      for (int64_t column = 0; column < c.columns; ++column) {
        EXPECT_EQ(t.out.AtIndex({2, column}), 7);
        EXPECT_EQ(t.out.AtIndex({0, column}), Reduce(kRows[0], c, t, 0, column, 7));
      }
    }
  }
}

TEST_F(SegmentsTest, TheFirstElementIsLargestEvenIfItIsNotANumber) {
  Case c{.rows = 3, .columns = 1, .begins = {0, 1}, .ends = {3, 3}, .positions = 3, .indexed = false};
  Tensors t = Make(kRows[4], c);
  t.data.Set(0, std::numeric_limits<Exact>::quiet_NaN());
  t.data.Set(1, 1);
  t.data.Set(2, 2);
  ASSERT_TRUE(Run(kRows[4], c, t).ok());
  EXPECT_EQ(t.out.At(0), 0);
  EXPECT_EQ(t.out.At(1), 2);
}

TEST_F(SegmentsTest, CompilesForGpus) {
  for (const std::string_view row : kRows) {
    for (const DType type : {DType::kFloat32, DType::kBFloat16, DType::kFloat64, DType::kInt64}) {
      const Case c{.type = type, .weighted = true};
      const Tensors t = Make(row, c);
      const Operand output = t.out.operand();
      const Operand inputs[] = {t.data.operand(), t.begins.operand(), t.ends.operand(), t.index.operand(),
                                t.weights.operand()};
      const ops::Number padding = ops::Number::Integer(-1);
      EXPECT_EQ(CompileForGpus({.row = &ops::RowOf(row),
                                .compute = type,
                                .outputs = {&output, 1},
                                .inputs = inputs,
                                .attributes = {&padding, 1}}),
                absl::OkStatus());
    }
  }
}

}  // namespace
}  // namespace xpud::kernels
