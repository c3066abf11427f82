// Sorting, selection and searches, compared with the standard library: each type, order and layout, sizes
// around tiles and merges.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "kernels/testing/device_test_fixture.h"
#include "kernels/testing/tensor.h"

namespace xpud::kernels {
namespace {

using ops::DType;
using ops::Number;

// Row-major strides, or those of the dimensions in the opposite order.
std::vector<int64_t> Strides(const std::vector<int64_t>& sizes, bool transposed) {
  std::vector<int64_t> strides(sizes.size());
  int64_t next = 1;
  for (size_t i = 0; i < sizes.size(); ++i) {
    const size_t d = transposed ? i : sizes.size() - 1 - i;
    strides[d] = next;
    next *= sizes[d];
  }
  return strides;
}

// NaN is the largest number.
bool Precedes(Exact a, Exact b) { return a < b || (std::isnan(b) && !std::isnan(a)); }
bool IsSame(Exact a, Exact b) {
  return (std::isnan(a) && std::isnan(b)) || (a == b && std::signbit(a) == std::signbit(b));
}

class SortTest : public DeviceTest {
 protected:
  struct Case {
    std::vector<int64_t> sizes;
    int dim = 0;
    DType type = DType::kFloat32;
    bool descending = false;
    int64_t k = -1;
    bool transposed = false;
    RandomRange range = {};
  };

  void Check(const Case& c) {
    std::string trace = absl::StrCat(std::string(ops::Info(c.type).name), " dim ", c.dim, " k ", c.k,
                                     c.descending ? " descending" : "", c.transposed ? " transposed" : "");
    for (const int64_t size : c.sizes) absl::StrAppend(&trace, " ", size);
    SCOPED_TRACE(trace);
    TestTensor self(c.type, c.sizes, Strides(c.sizes, c.transposed));
    Randomise(self, random_, c.range);
    const size_t dim = static_cast<size_t>(c.dim);
    std::vector<int64_t> kept = c.sizes;
    if (!kept.empty() && c.k >= 0) kept[dim] = c.k;
    TestTensor values(c.type, kept, Strides(kept, c.transposed)), indices(DType::kInt64, kept);
    const Operand outputs[] = {values.operand(), indices.operand()}, input = self.operand();
    const Number attributes[] = {Number::Integer(c.dim), Number::Integer(c.descending), Number::Integer(c.k)};
    const absl::Status status = device_.Run(*library_, {.row = &ops::RowOf("sort"),
                                                        .compute = c.type,
                                                        .outputs = outputs,
                                                        .inputs = {&input, 1},
                                                        .attributes = attributes});
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_TRUE(values.MarginsIntact());
    EXPECT_TRUE(indices.MarginsIntact());
    int64_t inner = 1;
    for (size_t d = dim + 1; d < c.sizes.size(); ++d) inner *= c.sizes[d];
    const int64_t n = c.sizes.empty() ? 1 : c.sizes[dim], k = c.k < 0 ? n : c.k;
    for (int64_t line = 0; n > 0 && line < self.numel() / n; ++line)
      CheckLine(c, self, values, indices, {n, k, inner, line});
  }

 private:
  struct Line {
    int64_t n, k, inner, number;
    int64_t At(int64_t i, int64_t size) const {
      return number / inner * inner * size + number % inner + i * inner;
    }
  };

  static void CheckLine(const Case& c, const TestTensor& self, const TestTensor& values,
                        const TestTensor& indices, const Line& line) {
    std::vector<int64_t> order(static_cast<size_t>(line.n));
    std::iota(order.begin(), order.end(), 0);
    const auto at = [&](int64_t i) { return self.At(line.At(i, line.n)); };
    std::sort(order.begin(), order.end(), [&](int64_t x, int64_t y) {
      const Exact a = c.descending ? at(y) : at(x), b = c.descending ? at(x) : at(y);
      return Precedes(a, b) || (!Precedes(b, a) && x < y);
    });
    for (int64_t i = 0; i < line.k; ++i) {
      const int64_t position = order[static_cast<size_t>(i)], to = line.At(i, line.k);
      ASSERT_EQ(static_cast<int64_t>(indices.At(to)), position) << "line " << line.number << " at " << i;
      ASSERT_TRUE(IsSame(values.At(to), at(position))) << "line " << line.number << " at " << i;
    }
  }

 protected:
  std::mt19937_64 random_{7};
};

TEST_F(SortTest, EveryTypeBothWays) {
  for (int t = 0; t < ops::kNumDTypes; ++t) {
    for (const bool descending : {false, true}) {
      const auto type = static_cast<DType>(t);
      Check({.sizes = {3, 5}, .dim = 1, .type = type, .descending = descending});
      Check(
          {.sizes = {2, 700}, .dim = 1, .type = type, .descending = descending, .range = {.specials = true}});
      Check({.sizes = {9'000}, .type = type, .descending = descending, .range = {.specials = true}});
      Check({.sizes = {2, 9'000},
             .dim = 1,
             .type = type,
             .descending = descending,
             .k = 7,
             .range = {.specials = true}});
    }
  }
}

TEST_F(SortTest, EveryDimensionAndLayout) {
  for (const bool transposed : {false, true}) {
    for (int dim = 0; dim < 3; ++dim) {
      for (const int64_t k : {int64_t{-1}, int64_t{0}, int64_t{1}, int64_t{5}})
        Check({.sizes = {7, 33, 19}, .dim = dim, .k = k, .transposed = transposed});
    }
  }
  Check({.sizes = {}});
  Check({.sizes = {1}});
  Check({.sizes = {0}});
  Check({.sizes = {3, 0}, .dim = 1});
  Check({.sizes = {0, 3}, .dim = 1, .k = 2});
  Check({.sizes = {100'000, 3}, .dim = 1});
}

TEST_F(SortTest, SizesAroundTilesAndMerges) {
  for (const DType type : {DType::kFloat32, DType::kInt64}) {
    for (const int64_t n :
         {7, 8, 9, 255, 256, 257, 2047, 2048, 2049, 4095, 4096, 4097, 8192, 8193, 12'289, 50'001})
      Check({.sizes = {2, n}, .dim = 1, .type = type});
  }
  Check({.sizes = {300'000}, .descending = true});
}

TEST_F(SortTest, FirstElements) {
  for (const DType type : {DType::kFloat32, DType::kFloat64}) {
    for (const int64_t n : {511, 512, 5'000, 32'768, 32'769}) {
      for (const int64_t k : {1, 50, 127})
        Check({.sizes = {2, n}, .dim = 1, .type = type, .descending = k % 2 == 0, .k = k});
    }
  }
  Check({.sizes = {100'003}, .k = 1024});
  Check({.sizes = {100'003}, .k = 1025});
  Check({.sizes = {100'003}, .k = 60'000});
  Check({.sizes = {300, 40}, .dim = 0, .k = 300});
}

// Every element is kept by a selection, and all but the first are dropped.
TEST_F(SortTest, ElementsInOrderAndEqualOnes) {
  for (const int64_t k : {int64_t{-1}, int64_t{3}, int64_t{300}}) {
    Check({.sizes = {70'000}, .type = DType::kBool, .k = k});
    Check({.sizes = {70'000},
           .type = DType::kUInt8,
           .descending = true,
           .k = k,
           .range = {.low = 0, .high = 3}});
    for (const bool descending : {false, true}) {
      TestTensor self(DType::kInt32, {70'000}), values(DType::kInt32, {k < 0 ? 70'000 : k}),
          indices(DType::kInt64, {k < 0 ? 70'000 : k});
      for (int64_t i = 0; i < 70'000; ++i) self.Set(i, static_cast<Exact>(i));
      const Operand outputs[] = {values.operand(), indices.operand()}, input = self.operand();
      const Number attributes[] = {Number::Integer(0), Number::Integer(descending), Number::Integer(k)};
      ASSERT_TRUE(device_
                      .Run(*library_, {.row = &ops::RowOf("sort"),
                                       .compute = DType::kInt32,
                                       .outputs = outputs,
                                       .inputs = {&input, 1},
                                       .attributes = attributes})
                      .ok());
      for (int64_t i = 0; i < values.numel(); ++i)
        ASSERT_EQ(static_cast<int64_t>(values.At(i)), descending ? 69'999 - i : i);
    }
  }
}

// ---- searches

class SearchTest : public SortTest {
 protected:
  struct Case {
    DType type = DType::kFloat32;
    std::vector<int64_t> line, sizes;
    bool right = false, narrow = false, transposed = false, sorts = false;
    DType sorter = DType::kInt64;
  };

  void Check(const Case& c) {
    SCOPED_TRACE(absl::StrCat(std::string(ops::Info(c.type).name), c.right ? " right" : "",
                              c.sorts ? " sorter" : "", " of ", c.line.back()));
    TestTensor sequence(c.type, c.line, Strides(c.line, c.transposed)),
        self(c.type, c.sizes, Strides(c.sizes, c.transposed));
    TestTensor sorter(c.sorter, c.line), out(c.narrow ? DType::kInt32 : DType::kInt64, c.sizes);
    Randomise(self, random_, {.low = 0, .high = 60, .specials = ops::IsFloating(c.type)});
    FillLines(c, sequence, sorter);
    const Operand output = out.operand();
    Operand inputs[] = {sequence.operand(), self.operand(), sorter.operand()};
    inputs[2].present = c.sorts;
    const Number attributes[] = {Number::Integer(c.right), Number::Integer(c.narrow)};
    uint64_t error = 0;
    const absl::Status status = device_.Run(*library_, {.row = &ops::RowOf("searchsorted.Tensor"),
                                                        .compute = c.type,
                                                        .outputs = {&output, 1},
                                                        .inputs = inputs,
                                                        .attributes = attributes,
                                                        .error_word = &error});
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_EQ(error, 0u);
    EXPECT_TRUE(out.MarginsIntact());
    const int64_t n = c.line.back(), per_line = c.line.size() == 1 ? self.numel() : c.sizes.back();
    for (int64_t i = 0; i < self.numel(); ++i) {
      const int64_t start = i / per_line * n;
      const Exact wanted = self.At(i);
      int64_t count = 0;
      for (int64_t p = 0; p < n; ++p) {
        const int64_t at = c.sorts ? static_cast<int64_t>(sorter.At(start + p)) : p;
        const Exact element = sequence.At(start + at);
        count += c.right ? !(element > wanted) : !(element >= wanted);
      }
      ASSERT_EQ(static_cast<int64_t>(out.At(i)), count) << "element " << i;
    }
  }

  // Sorted lines; with a sorter, in the opposite order.
  void FillLines(const Case& c, TestTensor& sequence, TestTensor& sorter) {
    const int64_t n = c.line.back();
    for (int64_t start = 0; start < sequence.numel(); start += n) {
      std::vector<Exact> elements(static_cast<size_t>(n));
      for (Exact& element : elements) element = static_cast<Exact>(random_() % 60);
      std::sort(elements.begin(), elements.end());
      for (int64_t p = 0; p < n; ++p) {
        sequence.Set(start + (c.sorts ? n - 1 - p : p), elements[static_cast<size_t>(p)]);
        sorter.Set(start + p, static_cast<Exact>(n - 1 - p));
      }
    }
  }
};

TEST_F(SearchTest, EveryTypeAndSide) {
  for (int t = 0; t < ops::kNumDTypes; ++t) {
    const auto type = static_cast<DType>(t);
    if (type == DType::kBool) continue;
    for (const bool right : {false, true}) {
      Check({.type = type, .line = {40}, .sizes = {5, 30}, .right = right});
      Check({.type = type, .line = {5, 33}, .sizes = {5, 30}, .right = right, .narrow = true});
      Check({.type = type,
             .line = {5, 33},
             .sizes = {5, 30},
             .right = right,
             .transposed = true,
             .sorts = true});
      Check({.type = type,
             .line = {1000},
             .sizes = {},
             .right = right,
             .sorts = true,
             .sorter = DType::kInt32});
    }
  }
  Check({.line = {4, 3, 2000}, .sizes = {4, 3, 1}});
  Check({.line = {1}, .sizes = {20'000}});
}

TEST_F(SearchTest, PositionsOutOfRangeAreReported) {
  TestTensor sequence(DType::kFloat32, {8}), self(DType::kFloat32, {3});
  TestTensor sorter(DType::kInt64, {8}), out(DType::kInt64, {3});
  for (const int64_t wrong : {int64_t{8}, int64_t{-1}, int64_t{1} << 40}) {
    for (int64_t i = 0; i < 8; ++i) sorter.Set(i, static_cast<Exact>(i == 4 ? wrong : i));
    const Operand output = out.operand();
    const Operand inputs[] = {sequence.operand(), self.operand(), sorter.operand()};
    const Number attributes[] = {Number::Integer(0), Number::Integer(0)};
    uint64_t error = 0;
    ASSERT_TRUE(device_
                    .Run(*library_, {.row = &ops::RowOf("searchsorted.Tensor"),
                                     .compute = DType::kFloat32,
                                     .outputs = {&output, 1},
                                     .inputs = inputs,
                                     .attributes = attributes,
                                     .error_word = &error})
                    .ok());
    EXPECT_EQ(error & 0xff, static_cast<uint64_t>(DeviceError::kIndexOutOfRange));
    EXPECT_TRUE(out.MarginsIntact());
  }
}

}  // namespace
}  // namespace xpud::kernels
