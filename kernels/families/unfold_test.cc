// Unfolding and folding beside plain loops.
#include <cmath>

#include "gtest/gtest.h"
#include "kernels/testing/device_test_fixture.h"
#include "kernels/testing/tensor.h"
#include "proto/ops/check.h"

namespace xpud::kernels {
namespace {

using ops::DType;
using Sizes = std::vector<int64_t>;
using Pair = std::array<int64_t, 2>;

struct Case {
  Pair in = {5, 7}, kernel = {2, 3}, dilation = {1, 1}, padding = {0, 0}, stride = {1, 1};
  int64_t batch = 2, channels = 3;
  bool channels_last = false;
  DType type = DType::kFloat32;

  Pair Windows() const {
    Pair out;
    for (size_t d = 0; d < 2; ++d)
      out[d] = (in[d] + 2 * padding[d] - dilation[d] * (kernel[d] - 1) - 1) / stride[d] + 1;
    return out;
  }
  Sizes Image() const { return {batch, channels, in[0], in[1]}; }
  Sizes ImageStrides() const {
    if (!channels_last) return {channels * in[0] * in[1], in[0] * in[1], in[1], 1};
    return {channels * in[0] * in[1], 1, in[1] * channels, channels};
  }
  Sizes Columns() const { return {batch, channels * kernel[0] * kernel[1], Windows()[0] * Windows()[1]}; }
  std::vector<ops::Number> Attributes(bool folds) const {
    std::vector<ops::Number> numbers;
    const auto add = [&](const Pair& pair) {
      numbers.push_back(ops::Number::Integer(2));
      for (const int64_t value : pair) numbers.push_back(ops::Number::Integer(value));
    };
    if (folds) add(in);
    for (const Pair* const pair : {&kernel, &dilation, &padding, &stride}) add(*pair);
    return numbers;
  }
};

class UnfoldTest : public DeviceTest {
 protected:
  absl::Status Run(const char* row, const Operand& output, const Operand& input,
                   const std::vector<ops::Number>& attributes) {
    const OpCall call = {.row = &ops::RowOf(row),
                         .compute = input.dtype,
                         .outputs = {&output, 1},
                         .inputs = {&input, 1},
                         .attributes = attributes};
    if (absl::Status status = ops::CheckCall(call); !status.ok()) return status;
    return device_.Run(*library_, call);
  }

  // Calls visit(element of the image or -1, element of the columns) for each element of columns.
  static void ForEach(const Case& c, const std::function<void(int64_t, int64_t)>& visit) {
    const Pair out = c.Windows();
    int64_t column = 0;
    for (int64_t plane = 0; plane < c.batch * c.channels; ++plane) {
      for (int64_t k = 0; k < c.kernel[0] * c.kernel[1]; ++k) {
        for (int64_t o = 0; o < out[0] * out[1]; ++o, ++column) {
          const int64_t y = o / out[1] * c.stride[0] - c.padding[0] + k / c.kernel[1] * c.dilation[0];
          const int64_t x = o % out[1] * c.stride[1] - c.padding[1] + k % c.kernel[1] * c.dilation[1];
          const bool inside = y >= 0 && y < c.in[0] && x >= 0 && x < c.in[1];
          visit(inside ? (plane * c.in[0] + y) * c.in[1] + x : -1, column);
        }
      }
    }
  }

  void Check(const Case& c) {
    SCOPED_TRACE(std::string(ops::Info(c.type).name) + (c.channels_last ? " channels last" : ""));
    TestTensor image(c.type, c.Image(), c.ImageStrides()), columns(c.type, c.Columns());
    for (int64_t i = 0; i < image.numel(); ++i) image.Set(i, static_cast<Exact>(i % 7 - 3));
    absl::Status status = Run("im2col", columns.operand(), image.operand(), c.Attributes(false));
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_TRUE(columns.MarginsIntact());
    ForEach(c, [&](int64_t pixel, int64_t column) {
      ASSERT_EQ(static_cast<double>(columns.At(column)),
                pixel < 0 ? 0.0 : static_cast<double>(image.At(pixel)));
    });
    std::vector<double> sums(static_cast<size_t>(image.numel()), 0);
    for (int64_t i = 0; i < columns.numel(); ++i) columns.Set(i, static_cast<Exact>(i % 5 - 2));
    ForEach(c, [&](int64_t pixel, int64_t column) {
      if (pixel >= 0) sums[static_cast<size_t>(pixel)] += static_cast<double>(columns.At(column));
    });
    status = Run("col2im", image.operand(), columns.operand(), c.Attributes(true));
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_TRUE(image.MarginsIntact());
    for (int64_t i = 0; i < image.numel(); ++i) {
      const double sum = sums[static_cast<size_t>(i)];
      ASSERT_EQ(static_cast<double>(image.At(i)), c.type == DType::kBool ? sum != 0 : sum) << i;
    }
  }

  std::mt19937_64 random_{5};
};

TEST_F(UnfoldTest, EveryTypeAndLayout) {
  for (const DType type :
       {DType::kFloat16, DType::kBFloat16, DType::kFloat32, DType::kFloat64, DType::kBool}) {
    for (const bool last : {false, true}) {
      Check({.in = {9, 21}, .kernel = {3, 3}, .padding = {1, 1}, .channels_last = last, .type = type});
      Check({.in = {6, 5}, .kernel = {2, 2}, .stride = {2, 2}, .channels_last = last, .type = type});
    }
  }
}

TEST_F(UnfoldTest, WindowsOfEveryKind) {
  for (const bool last : {false, true}) {
    for (const Pair& stride : {Pair{1, 1}, {2, 1}, {1, 3}, {5, 7}}) {
      for (const Pair& dilation : {Pair{1, 1}, {2, 3}}) {
        for (const Pair& padding : {Pair{0, 0}, {1, 2}, {9, 11}}) {
          Case c = {.in = {11, 19}, .kernel = {3, 2}, .dilation = dilation, .padding = padding};
          c.stride = stride;
          c.channels_last = last;
          Check(c);
        }
      }
    }
    Check({.in = {4, 40}, .kernel = {4, 40}, .channels_last = last});
    Check({.in = {1, 1}, .kernel = {1, 1}, .padding = {3, 3}, .batch = 1, .channels_last = last});
    Check({.in = {40, 37}, .kernel = {5, 5}, .padding = {2, 2}, .channels = 9, .channels_last = last});
  }
}

// Whatever a client sends is refused, or stays within its operands.
TEST_F(UnfoldTest, RandomAttributesStayInside) {
  constexpr int64_t kNumbers[] = {-4,        -1,       0, 9, 1000, (int64_t{1} << 31) - 1, int64_t{1} << 31,
                                  INT64_MAX, INT64_MIN};
  const auto any = [&](int64_t most) {
    return static_cast<int64_t>(random_() % static_cast<uint64_t>(most));
  };
  const auto number = [&](int64_t least) {
    return any(16) == 0 ? kNumbers[any(std::size(kNumbers))] : least + any(3);
  };
  int served = 0;
  for (int round = 0; round < 2000; ++round) {
    Case c = {.in = {any(9), any(20)}, .batch = any(3), .channels = any(3)};
    for (Pair* const pair : {&c.kernel, &c.dilation, &c.stride}) *pair = {number(1), number(1)};
    c.padding = {number(0), number(0)};
    const bool folds = any(2) == 0;
    // Often the right sizes, sometimes others.
    const auto fits = [](const Pair& pair) {
      return pair[0] > 0 && pair[0] < 99 && pair[1] > 0 && pair[1] < 99;
    };
    Sizes columns = {c.batch, any(20), any(40)};
    if (fits(c.kernel) && fits(c.stride) && any(8) != 0) columns = c.Columns();
    if (std::min(columns[1], columns[2]) < 0 || std::max(columns[1], columns[2]) > 300)
      columns = {c.batch, 4, 4};
    TestTensor image(DType::kFloat32, c.Image()), other(DType::kFloat32, columns);
    served += Run(folds ? "col2im" : "im2col", (folds ? image : other).operand(),
                  (folds ? other : image).operand(), c.Attributes(folds))
                      .ok()
                  ? 1
                  : 0;
    ASSERT_TRUE(image.MarginsIntact() && other.MarginsIntact()) << "round " << round;
  }
  EXPECT_GT(served, 200);
}

}  // namespace
}  // namespace xpud::kernels
