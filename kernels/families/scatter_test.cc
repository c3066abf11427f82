// Additions of rows at indices, and scatters along a dimension, compared with a reference that combines in
// the same order: results must be equal, not only close.
#include <algorithm>
#include <string_view>

#include "gtest/gtest.h"
#include "kernels/testing/device_test_fixture.h"
#include "kernels/testing/gpu.h"
#include "kernels/testing/tensor.h"

namespace xpud::kernels {
namespace {

using ops::DType;

class ScatterTest : public DeviceTest {
 protected:
  struct Case {
    int64_t rows = 9, columns = 5, count = 40;
    DType type = DType::kFloat32, index = DType::kInt64;
    int64_t padding = -1;
    bool strided = false;
    int64_t wrong = -1;  // this position's index is out of range
    int64_t wrong_index = 0;
  };

  // One addition as on the device: in f32 for 16-bit floats, and wrapping for integers.
  static Exact Add(DType type, Exact a, Exact b) {
    if (type == DType::kFloat64) return static_cast<double>(a) + static_cast<double>(b);
    if (ops::IsFloating(type)) return RoundTo(type, static_cast<float>(a) + static_cast<float>(b));
    return RoundTo(type,
                   static_cast<Exact>(static_cast<int64_t>(static_cast<uint64_t>(static_cast<int64_t>(a)) +
                                                           static_cast<uint64_t>(static_cast<int64_t>(b)))));
  }

  void Check(const Case& c) {
    SCOPED_TRACE(std::to_string(c.rows) + "x" + std::to_string(c.columns) + " from " +
                 std::to_string(c.count) + " " + std::string(ops::Info(c.type).name) +
                 (c.strided ? " strided" : ""));
    TestTensor out(c.type, {c.rows, c.columns}, {c.columns * (c.strided ? 2 : 1), c.strided ? 2 : 1});
    TestTensor index(c.index, {c.count}, {c.strided ? 3 : 1});
    TestTensor source(c.type, {c.count, c.columns}, {c.strided ? 1 : c.columns, c.strided ? c.count : 1});
    Randomise(out, random_, {.low = -100, .high = 100});
    Randomise(source, random_, {.low = -100, .high = 100});
    std::vector<Exact> want(static_cast<size_t>(out.numel()));
    for (int64_t i = 0; i < out.numel(); ++i) want[static_cast<size_t>(i)] = out.At(i);
    for (int64_t n = 0; n < c.count; ++n) {
      const int64_t row =
          n == c.wrong ? c.wrong_index : static_cast<int64_t>(random_() % static_cast<uint64_t>(c.rows));
      index.Set(n, row);
      if (n == c.wrong || row == c.padding) continue;
      for (int64_t k = 0; k < c.columns; ++k) {
        Exact& sum = want[static_cast<size_t>(row * c.columns + k)];
        sum = Add(c.type, sum, source.AtIndex({n, k}));
      }
    }
    const Operand output = out.operand();
    const Operand inputs[] = {index.operand(), source.operand()};
    const ops::Number padding = ops::Number::Integer(c.padding);
    uint64_t error = 0;
    const absl::Status status = device_.Run(*library_, {.row = &ops::RowOf("embedding_dense_backward"),
                                                        .compute = c.type,
                                                        .outputs = {&output, 1},
                                                        .inputs = inputs,
                                                        .attributes = {&padding, 1},
                                                        .error_word = &error});
    ASSERT_TRUE(status.ok()) << status;
    const uint64_t wrong =
        static_cast<uint64_t>(c.wrong_index) << 8 | static_cast<uint64_t>(DeviceError::kIndexOutOfRange);
    EXPECT_EQ(error, c.wrong < 0 ? 0 : wrong);
    for (int64_t i = 0; i < out.numel(); ++i) {
      ASSERT_EQ(out.At(i), want[static_cast<size_t>(i)]) << "element " << i;
    }
    EXPECT_TRUE(out.MarginsIntact());
  }

  std::mt19937_64 random_{5};
};

TEST_F(ScatterTest, EveryTypeAddsInOrder) {
  for (int t = 0; t < ops::kNumDTypes; ++t) {
    if (!ops::Contains(ops::RowOf("embedding_dense_backward").dtypes, static_cast<DType>(t))) continue;
    for (const DType index : {DType::kInt64, DType::kInt32})
      Check({.type = static_cast<DType>(t), .index = index});
    Check({.columns = 70, .type = static_cast<DType>(t), .strided = true});
  }
}

TEST_F(ScatterTest, EveryShapeAddsInOrder) {
  for (const bool strided : {false, true}) {
    Check({.rows = 1, .columns = 1, .count = 1, .strided = strided});
    Check({.rows = 3, .columns = 300, .count = 17, .strided = strided});
    Check({.rows = 500, .columns = 33, .count = 2000, .strided = strided});
  }
  Check({.count = 0});
}

// A GPU sorts long indices.
TEST_F(ScatterTest, LongIndicesAddInOrder) {
  for (const bool strided : {false, true}) {
    Check({.rows = 100, .columns = 33, .count = 1000, .strided = strided});
    Check({.rows = 5000, .columns = 3, .count = 4000, .strided = strided});
    Check({.rows = 3, .columns = 40, .count = 513, .index = DType::kInt32, .strided = strided});
  }
  Check({.columns = 20, .count = 800, .padding = 3});
  Check({.columns = 20, .count = 800, .type = DType::kFloat64, .wrong = 799, .wrong_index = -3});
}

TEST_F(ScatterTest, LargeWorkIsCutAndStillAddsInOrder) {
  Check({.rows = 1000, .columns = 384, .count = 3000});  // cut by columns
  EXPECT_GT(device_.groups(), 1u);
  Check({.rows = 200, .columns = 48, .count = 50000, .type = DType::kBFloat16});  // also cut by rows
  EXPECT_GT(device_.groups(), 2u);
}

TEST_F(ScatterTest, PaddingIsSkipped) {
  Check({.padding = 3});
  Check({.padding = 0});
}

TEST_F(ScatterTest, IndicesOutOfRangeAreReportedAndSkipped) {
  for (const int64_t wrong : {int64_t{9}, int64_t{-1}, int64_t{1} << 40}) {
    for (const int64_t position : {0, 20, 39}) Check({.wrong = position, .wrong_index = wrong});
  }
}

// ---- along any dimension

constexpr std::string_view kRows[] = {"xpud::scatter", "xpud::scatter_add", "xpud::scatter_mul",
                                      "xpud::scatter_max", "xpud::scatter_min"};
// Sums and products of the tests are exact, so these give the same.
constexpr std::string_view kAnyOrder[] = {"xpud::scatter_add_any_order", "xpud::scatter_mul_any_order"};

class ScatterAlongTest : public DeviceTest {
 protected:
  using Sizes = std::vector<int64_t>;
  struct Case {
    Sizes out = {5, 6}, index = {7, 6};
    int64_t dim = 0;
    DType type = DType::kFloat32, index_type = DType::kInt64, source = DType::kFloat32;
    Sizes out_strides = {}, index_strides = {}, source_strides = {};
    bool immediate = false;
    int64_t wrong = -1;  // this entry of the index is `wrong_index`
    int64_t wrong_index = 0;
  };

  static TestTensor Make(DType type, const Sizes& sizes, const Sizes& strides) {
    return strides.empty() ? TestTensor(type, sizes) : TestTensor(type, sizes, strides);
  }
  // Numbers whose sums and products are exact in every type.
  Exact Small(DType type, bool factor) {
    if (type == DType::kBool) return static_cast<Exact>(random_() % 2);
    if (factor) return type == DType::kUInt8 ? 1 : static_cast<Exact>(random_() % 2) * 2 - 1;
    const auto number = static_cast<Exact>(random_() % 4);
    return type == DType::kUInt8 || random_() % 2 == 0 ? number : -number;
  }
  static Exact Combine(std::string_view row, DType type, Exact a, Exact b) {
    if (row == kRows[0]) return b;
    const Exact result = row == kRows[1] || row == kAnyOrder[0]   ? a + b
                         : row == kRows[2] || row == kAnyOrder[1] ? a * b
                         : row == kRows[3]                        ? std::max(a, b)
                                                                  : std::min(a, b);
    return type == DType::kBool ? static_cast<Exact>(result != 0) : result;
  }
  // The place in out of entry `at`, whose position along the dimension is `position`.
  static int64_t PlaceOf(const Case& c, int64_t at, int64_t position) {
    Sizes index(c.index.size());
    for (size_t d = c.index.size(); d-- > 0; at /= c.index[d]) index[d] = at % c.index[d];
    index[static_cast<size_t>(c.dim)] = position;
    int64_t place = 0;
    for (size_t d = 0; d < c.out.size(); ++d) place = place * c.out[d] + index[d];
    return place;
  }

  void Check(const Case& c) {
    for (const std::string_view row : kRows) Check(row, c);
    for (const std::string_view row : kAnyOrder) Check(row, c);
  }
  void Check(std::string_view row, const Case& c) {
    SCOPED_TRACE(std::string(row) + " " + std::string(ops::Info(c.type).name) + " along " +
                 std::to_string(c.dim));
    TestTensor out = Make(c.type, c.out, c.out_strides), index = Make(c.index_type, c.index, c.index_strides),
               source = Make(c.source, c.index, c.source_strides);
    for (int64_t i = 0; i < out.numel(); ++i)
      out.Set(i, Small(c.type, row == kRows[2] || row == kAnyOrder[1]));
    for (int64_t i = 0; i < index.numel(); ++i) {
      source.Set(i, Small(c.source, row == kRows[2] || row == kAnyOrder[1]));
      const auto choices = static_cast<uint64_t>(c.out[static_cast<size_t>(c.dim)]);
      index.Set(i, static_cast<Exact>(random_() % choices));
    }
    if (c.wrong >= 0) index.Set(c.wrong, static_cast<Exact>(c.wrong_index));
    std::vector<Exact> want(static_cast<size_t>(out.numel()));
    for (int64_t i = 0; i < out.numel(); ++i) want[static_cast<size_t>(i)] = out.At(i);
    for (int64_t i = 0; i < index.numel(); ++i) {
      const auto position = static_cast<int64_t>(index.At(i));
      if (position < 0 || position >= c.out[static_cast<size_t>(c.dim)]) continue;
      Exact& element = want[static_cast<size_t>(PlaceOf(c, i, position))];
      element = Combine(row, c.type, element, c.immediate ? 1 : RoundTo(c.type, source.At(i)));
    }
    Operand number;
    number.immediate = true;
    number.number = ops::Number::Real(1);
    const Operand output = out.operand(),
                  inputs[] = {index.operand(), c.immediate ? number : source.operand()};
    const ops::Number dim = ops::Number::Integer(c.dim);
    uint64_t error = 0;
    const absl::Status status = device_.Run(*library_, {.row = &ops::RowOf(row),
                                                        .compute = c.type,
                                                        .outputs = {&output, 1},
                                                        .inputs = inputs,
                                                        .attributes = {&dim, 1},
                                                        .error_word = &error});
    ASSERT_TRUE(status.ok()) << status;
    const uint64_t wrong =
        static_cast<uint64_t>(c.wrong_index) << 8 | static_cast<uint64_t>(DeviceError::kIndexOutOfRange);
    EXPECT_EQ(error, c.wrong < 0 ? 0 : wrong);
    for (int64_t i = 0; i < out.numel(); ++i)
      ASSERT_EQ(out.At(i), want[static_cast<size_t>(i)]) << "element " << i;
    EXPECT_TRUE(out.MarginsIntact());
  }

  std::mt19937_64 random_{11};
};

TEST_F(ScatterAlongTest, EveryType) {
  for (int t = 0; t < ops::kNumDTypes; ++t) {
    const auto type = static_cast<DType>(t);
    Check({.index = {5, 9}, .dim = 1, .type = type, .source = type});
    Check({.type = type, .index_type = DType::kInt32, .source = type});
    Check({.type = type, .source = type, .immediate = true});
  }
  Check({.type = DType::kFloat32, .source = DType::kBFloat16});
  Check({.type = DType::kFloat32, .source = DType::kFloat16});
  Check({.type = DType::kInt64, .source = DType::kInt8});
}

TEST_F(ScatterAlongTest, EveryDimensionAndLayout) {
  for (int64_t dim = 0; dim < 3; ++dim) {
    Sizes index = {4, 5, 17};
    index[static_cast<size_t>(dim)] = 23;
    Check({.out = {4, 6, 20}, .index = index, .dim = dim});
    Check({.out = {4, 6, 20}, .index = index, .dim = dim, .out_strides = {1, 4, 24}});
    Check({.out = {4, 6, 20},
           .index = index,
           .dim = dim,
           .out_strides = {240, 40, 2},
           .source_strides = {1, 30, 900}});
    Sizes shared(3, 0);
    shared[static_cast<size_t>(dim)] = 1;
    Check({.out = {4, 6, 20}, .index = index, .dim = dim, .index_strides = shared});
  }
  Check({.out = {1}, .index = {1}});
  Check({.out = {9}, .index = {300}});
  Check({.out = {2, 1, 2, 3, 1, 2, 2, 3}, .index = {2, 1, 2, 3, 1, 2, 2, 9}, .dim = 7});
}

TEST_F(ScatterAlongTest, LargeWorkIsCut) {
  Check("xpud::scatter_add", {.out = {300, 700}, .index = {2000, 700}, .index_strides = {1, 0}});
  EXPECT_GT(device_.groups(), 1u);
  Check("xpud::scatter_max", {.out = {40, 40}, .index = {20000, 40}, .index_strides = {1, 0}});
  EXPECT_GT(device_.groups(), 1u);
  Check("xpud::scatter", {.out = {5000, 30}, .index = {5000, 60}, .dim = 1});
  EXPECT_GT(device_.groups(), 1u);
  Check("xpud::scatter", {.out = {30, 5000}, .index = {60, 5000}});
  EXPECT_GT(device_.groups(), 1u);
}

TEST_F(ScatterAlongTest, LongIndices) {
  for (const DType type : {DType::kFloat32, DType::kInt64, DType::kFloat16}) {
    Check({.out = {40}, .index = {3000}, .type = type, .source = type});
    Check({.out = {3000}, .index = {700}, .type = type, .source = type, .immediate = true});
    Check({.out = {7, 70},
           .index = {7, 5000},
           .dim = 1,
           .type = type,
           .source = type,
           .index_strides = {0, 1},
           .wrong = 0,
           .wrong_index = 70});
  }
  Check({.out = {30, 9}, .index = {600, 9}, .index_type = DType::kInt32, .index_strides = {1, 0}});
}

// Of such rows, a GPU's lane may take a block.
TEST_F(ScatterAlongTest, RowsOfFloatsWithOneIndex) {
  Check({.out = {9, 64}, .index = {50, 64}, .index_strides = {1, 0}});
  Check({.out = {9, 64}, .index = {50, 64}, .index_strides = {1, 0}, .wrong = 64, .wrong_index = 9});
  Check({.out = {9, 63}, .index = {50, 63}, .index_strides = {1, 0}});
  Check({.out = {9, 64}, .index = {50, 64}, .out_strides = {66, 1}, .index_strides = {1, 0}});
  Check({.out = {9, 64}, .index = {50, 64}, .index_strides = {1, 0}, .source_strides = {65, 1}});
  Check({.out = {3, 9, 8}, .index = {3, 50, 8}, .dim = 1, .index_strides = {0, 1, 0}});
  Check({.out = {9, 3, 8}, .index = {50, 3, 8}, .index_strides = {1, 0, 0}});
}

TEST_F(ScatterAlongTest, AnyOrderPutsOneOfTheSources) {
  TestTensor out(DType::kFloat32, {50, 3}), index(DType::kInt64, {400, 3}), source(DType::kFloat32, {400, 3});
  for (int64_t i = 0; i < out.numel(); ++i) out.Set(i, -1);
  for (int64_t i = 0; i < index.numel(); ++i) {
    index.Set(i, static_cast<Exact>(random_() % 40));
    source.Set(i, static_cast<Exact>(i));
  }
  const Operand output = out.operand(), inputs[] = {index.operand(), source.operand()};
  const ops::Number dim = ops::Number::Integer(0);
  uint64_t error = 0;
  const absl::Status status = device_.Run(*library_, {.row = &ops::RowOf("xpud::scatter_any_order"),
                                                      .compute = DType::kFloat32,
                                                      .outputs = {&output, 1},
                                                      .inputs = inputs,
                                                      .attributes = {&dim, 1},
                                                      .error_word = &error});
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(error, 0);
  for (int64_t i = 0; i < out.numel(); ++i) {
    const auto from = static_cast<int64_t>(out.At(i));
    const bool named = from >= 0;
    if (named) {
      EXPECT_EQ(static_cast<int64_t>(index.At(from)) * 3 + from % 3, i);
    } else {
      for (int64_t n = i % 3; n < index.numel(); n += 3) EXPECT_NE(static_cast<int64_t>(index.At(n)), i / 3);
    }
  }
}

TEST_F(ScatterAlongTest, IndicesOutOfRangeAreReportedAndSkipped) {
  for (const int64_t wrong : {int64_t{5}, int64_t{-1}, int64_t{1} << 40}) {
    for (const int64_t at : {0, 17, 41}) {
      Check({.wrong = at, .wrong_index = wrong});
      Check({.out = {5, 20}, .index = {7, 20}, .wrong = at, .wrong_index = wrong});
      Check({.out = {4, 5}, .index = {4, 12}, .dim = 1, .wrong = at, .wrong_index = wrong});
    }
  }
}

TEST_F(ScatterAlongTest, CompilesForGpus) {
  std::vector<std::string_view> rows(std::begin(kRows), std::end(kRows));
  rows.insert(rows.end(), std::begin(kAnyOrder), std::end(kAnyOrder));
  for (const std::string_view row : rows) {
    for (const DType type :
         {DType::kFloat32, DType::kBFloat16, DType::kFloat64, DType::kInt64, DType::kBool}) {
      TestTensor out(type, {50, 20}), index(DType::kInt64, {30, 20}), source(type, {30, 20});
      const Operand output = out.operand();
      const Operand inputs[] = {index.operand(), source.operand()};
      const ops::Number dim = ops::Number::Integer(0);
      EXPECT_EQ(CompileForGpus({.row = &ops::RowOf(row),
                                .compute = type,
                                .outputs = {&output, 1},
                                .inputs = inputs,
                                .attributes = {&dim, 1}}),
                absl::OkStatus());
    }
  }
}

TEST_F(ScatterTest, CompilesForGpus) {
  for (const DType type :
       {DType::kFloat32, DType::kBFloat16, DType::kFloat16, DType::kInt64, DType::kUInt8}) {
    TestTensor out(type, {50, 20}), index(DType::kInt64, {30}), source(type, {30, 20});
    const Operand output = out.operand();
    const Operand inputs[] = {index.operand(), source.operand()};
    const ops::Number padding = ops::Number::Integer(-1);
    EXPECT_EQ(CompileForGpus({.row = &ops::RowOf("embedding_dense_backward"),
                              .compute = type,
                              .outputs = {&output, 1},
                              .inputs = inputs,
                              .attributes = {&padding, 1}}),
              absl::OkStatus());
  }
}

}  // namespace
}  // namespace xpud::kernels
