// Max pooling, its gradient and max_unpool beside plain loops.
#include <cmath>
#include <limits>

#include "gtest/gtest.h"
#include "kernels/testing/device_test_fixture.h"
#include "kernels/testing/tensor.h"
#include "proto/ops/check.h"
#include "proto/ops/families/windows.h"

namespace xpud::kernels {
namespace {

using ops::DType;
using ops::Window;
using Sizes = std::vector<int64_t>;

Window Pool(int64_t in, int64_t kernel, int64_t stride, int64_t padding, int64_t dilation) {
  const int64_t reach = dilation * (kernel - 1) + 1;
  return {.in = in,
          .out = (in + 2 * padding - reach) / stride + 1,
          .kernel = kernel,
          .stride = stride,
          .padding = padding,
          .dilation = dilation};
}

struct Case {
  std::vector<Window> windows;  // of the last dimensions
  bool adaptive = false;
  int64_t channels = 3;
  bool channels_last = false;
  DType type = DType::kFloat32;
  bool specials = false;
};

Sizes StridesOf(const Sizes& sizes, bool channels_last) {
  Sizes order, strides(sizes.size());
  for (size_t d = 0; d < sizes.size(); ++d) order.push_back(static_cast<int64_t>(d));
  if (channels_last) std::rotate(order.begin() + 1, order.begin() + 2, order.end());
  int64_t next = 1;
  for (size_t i = sizes.size(); i-- > 0;) {
    strides[static_cast<size_t>(order[i])] = next;
    next *= sizes[static_cast<size_t>(order[i])];
  }
  return strides;
}

// The inputs of output `o` along a dimension.
std::vector<int64_t> InputsOf(const Window& w, bool adaptive, int64_t o) {
  std::vector<int64_t> inputs;
  if (adaptive) {
    for (int64_t i = o * w.in / w.out; i < ((o + 1) * w.in + w.out - 1) / w.out; ++i) inputs.push_back(i);
    return inputs;
  }
  for (int64_t j = 0; j < w.kernel; ++j) {
    const int64_t i = o * w.stride - w.padding + j * w.dilation;
    if (i >= 0 && i < w.in) inputs.push_back(i);
  }
  return inputs;
}

class MaxPoolTest : public DeviceTest {
 protected:
  static std::vector<ops::Number> AttributesOf(const Case& c) {
    std::vector<ops::Number> numbers = {ops::Number::Integer(c.adaptive ? 1 : 0)};
    for (int64_t Window::* const member :
         {&Window::kernel, &Window::stride, &Window::padding, &Window::dilation}) {
      numbers.push_back(ops::Number::Integer(static_cast<int64_t>(c.windows.size())));
      for (const Window& w : c.windows) numbers.push_back(ops::Number::Integer(w.*member));
    }
    return numbers;
  }

  absl::Status Run(const char* row, std::vector<Operand> outputs, std::vector<Operand> inputs,
                   std::vector<ops::Number> attributes) {
    const OpCall call = {.row = &ops::RowOf(row),
                         .compute = inputs[0].dtype,
                         .outputs = outputs,
                         .inputs = inputs,
                         .attributes = attributes,
                         .error_word = &error_};
    if (absl::Status status = ops::CheckCall(call); !status.ok()) return status;
    return device_.Run(*library_, call);
  }

  // Returns the maximum and its position for output number `o` of plane number `plane` of `in`.
  static std::pair<double, int64_t> Largest(const Case& c, const TestTensor& in, int64_t plane, int64_t o) {
    std::vector<std::vector<int64_t>> inputs;
    int64_t size = 1;
    for (size_t d = c.windows.size(); d-- > 0; o /= c.windows[d].out) {
      inputs.insert(inputs.begin(), InputsOf(c.windows[d], c.adaptive, o % c.windows[d].out));
      size *= c.windows[d].in;
    }
    std::vector<int64_t> positions = {0};
    for (size_t d = 0; d < inputs.size(); ++d) {
      std::vector<int64_t> next;
      for (const int64_t position : positions)
        for (const int64_t i : inputs[d]) next.push_back(position * c.windows[d].in + i);
      positions = next;
    }
    double value = 0;
    int64_t best = -1;
    for (const int64_t position : positions) {
      const auto element = static_cast<double>(in.At(plane * size + position));
      if (best < 0 || element > value || std::isnan(element)) value = element, best = position;
    }
    return {value, best};
  }

  void Check(const Case& c) {
    Sizes from = {2, c.channels}, to = {2, c.channels};
    int64_t size = 1, outputs = 1;
    for (const Window& w : c.windows) {
      from.push_back(w.in);
      to.push_back(w.out);
      size *= w.in;
      outputs *= w.out;
    }
    SCOPED_TRACE(std::string(ops::Info(c.type).name) + " of " + std::to_string(c.channels) + " channels" +
                 (c.channels_last ? " last" : ""));
    TestTensor in(c.type, from, StridesOf(from, c.channels_last));
    TestTensor values(c.type, to, StridesOf(to, c.channels_last));
    TestTensor indices(DType::kInt64, to, StridesOf(to, c.channels_last));
    Randomise(in, random_, {.low = 0, .high = 12, .specials = c.specials});
    for (int64_t i = 0; i < in.numel(); i += 3) in.Set(i, 5);  // equal elements
    absl::Status status = Run("max_pool2d_with_indices", {values.operand(), indices.operand()},
                              {in.operand()}, AttributesOf(c));
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_TRUE(values.MarginsIntact() && indices.MarginsIntact());
    for (int64_t i = 0; i < values.numel(); ++i) {
      const auto [value, best] = Largest(c, in, i / outputs, i % outputs);
      const auto got = static_cast<double>(values.At(i));
      ASSERT_TRUE(got == value || (std::isnan(got) && std::isnan(value))) << i << ": " << got << " " << value;
      ASSERT_EQ(static_cast<int64_t>(indices.At(i)), best) << i;
    }
    if (ops::IsFloating(c.type)) CheckGradient(c, from, to, indices, size, outputs);
  }

  void CheckGradient(const Case& c, const Sizes& from, const Sizes& to, const TestTensor& indices,
                     int64_t size, int64_t outputs) {
    TestTensor gradient(c.type, to, StridesOf(to, c.channels_last));
    TestTensor out(c.type, from, StridesOf(from, c.channels_last));
    for (int64_t i = 0; i < gradient.numel(); ++i) gradient.Set(i, static_cast<Exact>(i % 5 - 2));
    const absl::Status status = Run("max_pool2d_with_indices_backward", {out.operand()},
                                    {gradient.operand(), indices.operand()}, AttributesOf(c));
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_TRUE(out.MarginsIntact());
    std::vector<double> sums(static_cast<size_t>(out.numel()), 0);
    for (int64_t i = 0; i < gradient.numel(); ++i)
      sums[static_cast<size_t>(i / outputs * size + static_cast<int64_t>(indices.At(i)))] +=
          static_cast<double>(gradient.At(i));
    for (int64_t i = 0; i < out.numel(); ++i)
      ASSERT_EQ(static_cast<double>(out.At(i)), sums[static_cast<size_t>(i)]) << i;
  }

  std::mt19937_64 random_{7};
  uint64_t error_ = 0;
};

TEST_F(MaxPoolTest, EveryTypeAndLayout) {
  for (int t = 0; t < ops::kNumDTypes; ++t) {
    const auto type = static_cast<DType>(t);
    if (type == DType::kBool) continue;
    for (const bool last : {false, true}) {
      for (const int64_t channels : {3, 8, 45}) {
        const std::vector<Window> windows = {Pool(9, 3, 2, 1, 1), Pool(21, 3, 2, 1, 1)};
        Check({.windows = windows, .channels = channels, .channels_last = last, .type = type});
      }
    }
  }
}

TEST_F(MaxPoolTest, WindowsOfEveryKind) {
  for (const bool last : {false, true}) {
    for (const Window& w : {Pool(20, 2, 2, 0, 1), Pool(21, 3, 1, 1, 2), Pool(40, 5, 3, 2, 1),
                            Pool(30, 2, 7, 1, 1), Pool(17, 4, 2, 2, 3), Pool(8, 8, 8, 0, 1)}) {
      Check({.windows = {w, w}, .channels = 9, .channels_last = last});
      Check({.windows = {Pool(4, 2, 1, 0, 1), Pool(5, 3, 2, 1, 1), w}, .channels_last = last});
      Check({.windows = {w}});
    }
    for (const auto& [in, out] : {std::pair<int64_t, int64_t>{20, 7}, {9, 20}, {6, 1}, {32, 16}}) {
      const std::vector<Window> windows = {{.in = in, .out = out}, {.in = 17, .out = 9}};
      Check({.windows = windows, .adaptive = true, .channels = 10, .channels_last = last});
    }
  }
}

TEST_F(MaxPoolTest, InfinitiesAndNaN) {
  for (const bool last : {false, true}) {
    for (const DType type : {DType::kFloat32, DType::kFloat64}) {
      const std::vector<Window> windows = {Pool(20, 3, 2, 1, 1), Pool(33, 3, 2, 1, 1)};
      for (const int64_t channels : {3, 16}) {
        // NaN has no gradient that could be compared.
        Case c = {.windows = windows, .channels = channels, .channels_last = last, .type = type};
        c.specials = true;
        Check(c);
      }
    }
  }
}

TEST_F(MaxPoolTest, ElementsReturnToTheirPositions) {
  TestTensor self(DType::kFloat32, {2, 2, 2}), indices(DType::kInt64, {2, 2, 2}),
      out(DType::kFloat32, {2, 3, 5});
  const int64_t positions[] = {0, 14, 7, 7, 3, 1, 15, -1};  // the last two are outside
  for (int64_t i = 0; i < 8; ++i) self.Set(i, static_cast<Exact>(i + 1)), indices.Set(i, positions[i]);
  for (int64_t i = 0; i < 30; ++i) out.Set(i, -1);
  const absl::Status status =
      Run("max_unpool2d", {out.operand()}, {self.operand(), indices.operand()}, {ops::Number::Integer(2)});
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_TRUE(out.MarginsIntact());
  std::vector<double> want(30, -1);
  want[0] = 1, want[14] = 2, want[7] = 4, want[15 + 3] = 5, want[15 + 1] = 6;
  for (int64_t i = 0; i < 30; ++i)
    EXPECT_EQ(static_cast<double>(out.At(i)), want[static_cast<size_t>(i)]) << i;
  EXPECT_EQ(error_ & 0xff, static_cast<uint64_t>(DeviceError::kIndexOutOfRange));
}

// Whatever a client sends is refused, or stays within its operands.
TEST_F(MaxPoolTest, RandomAttributesStayInside) {
  const auto any = [&](int64_t most) {
    return static_cast<int64_t>(random_() % static_cast<uint64_t>(most));
  };
  constexpr int64_t kNumbers[] = {-4, -1, 0, 1, 2, 3, 9, 1000, (int64_t{1} << 31) - 1, INT64_MAX, INT64_MIN};
  const auto number = [&] { return any(3) == 0 ? kNumbers[any(std::size(kNumbers))] : 1 + any(3); };
  int served = 0;
  for (int round = 0; round < 600; ++round) {
    Case c = {.windows = {}, .adaptive = any(3) == 0, .channels = 1 + any(9)};
    Sizes from = {2, c.channels}, to = from;
    for (int64_t d = 1 + any(2); d > 0; --d) {
      const Window w = {.in = any(20),
                        .out = any(20),
                        .kernel = number(),
                        .stride = number(),
                        .padding = number(),
                        .dilation = number()};
      from.push_back(w.in);
      to.push_back(w.out);
      c.windows.push_back(w);
    }
    TestTensor in(DType::kFloat32, from), values(DType::kFloat32, to), indices(DType::kInt64, to);
    TestTensor back(DType::kFloat32, from);
    served +=
        Run("max_pool2d_with_indices", {values.operand(), indices.operand()}, {in.operand()}, AttributesOf(c))
                .ok()
            ? 1
            : 0;
    ASSERT_TRUE(values.MarginsIntact() && indices.MarginsIntact()) << "round " << round;
    for (int64_t i = 0; i < indices.numel(); ++i) indices.Set(i, static_cast<Exact>(any(1000) - 500));
    served += Run("max_pool2d_with_indices_backward", {back.operand()}, {values.operand(), indices.operand()},
                  AttributesOf(c))
                      .ok()
                  ? 1
                  : 0;
    ASSERT_TRUE(back.MarginsIntact()) << "round " << round;
  }
  EXPECT_GT(served, 50);
}

}  // namespace
}  // namespace xpud::kernels
