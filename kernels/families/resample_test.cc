// Resampling beside dense matrices: each kind of map and its gradient, in every layout and type.
#include <cmath>

#include "gtest/gtest.h"
#include "kernels/testing/device_test_fixture.h"
#include "kernels/testing/tensor.h"
#include "proto/ops/check.h"
#include "proto/ops/families/windows.h"

namespace xpud::kernels {
namespace {

using ops::DType;
using ops::ResampleKind;
using ops::Window;
using Sizes = std::vector<int64_t>;
using Matrix = std::vector<std::vector<double>>;  // weights[out][in]

double Keys(double x, double a) {
  x = std::fabs(x);
  if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  return x < 2 ? ((a * x - 5 * a) * x + 8 * a) * x - 4 * a : 0;
}

// How a map is described to the kernel, and to the reference.
struct Map {
  ResampleKind kind = ResampleKind::kNearest;
  bool half_pixel = false;
  bool include_padding = false;
  std::vector<Window> windows;  // of the last dimensions
};

void AddArea(const Map& map, const Window& w, int64_t o, std::vector<double>& row) {
  const bool cubic = map.kind == ResampleKind::kCubicArea;
  const double wide = std::fmax(w.scale, 1), support = (cubic ? 2 : 1) * wide;
  const double center = w.scale * (static_cast<double>(o) + 0.5);
  const auto first = static_cast<int64_t>(std::fmax(std::floor(center - support + 0.5), 0));
  const int64_t end = std::min(static_cast<int64_t>(std::floor(center + support + 0.5)), w.in);
  double total = 0;
  for (int64_t i = first; i < end; ++i) {
    const double x = (static_cast<double>(i) - center + 0.5) / wide;
    const double weight = cubic ? Keys(x, -0.5) : std::fmax(1 - std::fabs(x), 0);
    row[static_cast<size_t>(i)] = weight;
    total += weight;
  }
  for (double& weight : row) weight /= total;
}

std::vector<double> RowOf(const Map& map, const Window& w, int64_t o) {
  std::vector<double> row(static_cast<size_t>(w.in), 0);
  const auto at = [&](int64_t i) -> double& {
    return row[static_cast<size_t>(std::clamp<int64_t>(i, 0, w.in - 1))];
  };
  const double position =
      map.half_pixel ? w.scale * (static_cast<double>(o) + 0.5) - 0.5 : w.scale * static_cast<double>(o);
  const auto base = static_cast<int64_t>(std::floor(position));
  const double part = position - std::floor(position);
  switch (map.kind) {
    case ResampleKind::kAverage: {
      const int64_t start = o * w.stride - w.padding, end = std::min(start + w.kernel, w.in + w.padding);
      int64_t inside = 0;
      for (int64_t i = start; i < end; ++i) inside += i >= 0 && i < w.in ? 1 : 0;
      const double weight =
          w.scale > 0 ? w.scale : 1 / static_cast<double>(map.include_padding ? end - start : inside);
      for (int64_t i = start; i < end; ++i)
        if (i >= 0 && i < w.in) at(i) = weight;
      break;
    }
    case ResampleKind::kAdaptive: {
      const int64_t start = o * w.in / w.out, end = ((o + 1) * w.in + w.out - 1) / w.out;
      for (int64_t i = start; i < end; ++i) at(i) = 1 / static_cast<double>(end - start);
      break;
    }
    case ResampleKind::kNearest:
      at(static_cast<int64_t>(std::floor(map.half_pixel ? position + 0.5 : position))) = 1;
      break;
    case ResampleKind::kLinear:
      at(base) += position < 0 ? 0 : 1 - part;
      at(position < 0 ? 0 : base + 1) += position < 0 ? 1 : part;
      break;
    case ResampleKind::kCubic:
      for (int64_t j = -1; j < 3; ++j) at(base + j) += Keys(part - static_cast<double>(j), -0.75);
      break;
    case ResampleKind::kReflect: {
      int64_t i = std::abs(o - w.padding);
      if (i >= w.in) i = 2 * (w.in - 1) - i;
      at(i) = 1;
      break;
    }
    case ResampleKind::kReplicate:
      at(o - w.padding) = 1;
      break;
    default:
      AddArea(map, w, o, row);
  }
  return row;
}

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

class ResampleTest : public DeviceTest {
 protected:
  static std::vector<ops::Number> AttributesOf(const Map& map, bool transposed) {
    std::vector<ops::Number> numbers;
    const auto add = [&](int64_t value) { numbers.push_back(ops::Number::Integer(value)); };
    const auto count = static_cast<int64_t>(map.windows.size());
    for (const int64_t value : {static_cast<int64_t>(map.kind), int64_t{transposed}, int64_t{map.half_pixel},
                                int64_t{map.include_padding}, count})
      add(value);
    for (const Window& w : map.windows) numbers.push_back(ops::Number::Real(w.scale));
    for (int64_t Window::* const member : {&Window::kernel, &Window::stride, &Window::padding}) {
      add(count);
      for (const Window& w : map.windows) add(w.*member);
    }
    return numbers;
  }

  absl::Status Run(const Map& map, bool transposed, const TestTensor& in, const TestTensor& out) {
    const std::vector<ops::Number> attributes = AttributesOf(map, transposed);
    const Operand input = in.operand(), output = out.operand();
    const OpCall call = {.row = &ops::RowOf("avg_pool2d"),
                         .compute = in.dtype(),
                         .outputs = {&output, 1},
                         .inputs = {&input, 1},
                         .attributes = attributes};
    if (absl::Status status = ops::CheckCall(call); !status.ok()) return status;
    return device_.Run(*library_, call);
  }

  // Applies the map to the last dimensions of [2, channels, ..], in the order of memory.
  static std::vector<double> Apply(const Map& map, bool transposed, const TestTensor& in) {
    std::vector<double> values;
    for (int64_t i = 0; i < in.numel(); ++i) values.push_back(static_cast<double>(in.At(i)));
    Sizes sizes = in.sizes();
    for (size_t d = 0; d < map.windows.size(); ++d) {
      const Window& w = map.windows[d];
      const size_t dim = sizes.size() - map.windows.size() + d;
      Matrix matrix;
      for (int64_t o = 0; o < w.out; ++o) matrix.push_back(RowOf(map, w, o));
      int64_t inner = 1, outer = 1;
      for (size_t e = 0; e < sizes.size(); ++e) (e < dim ? outer : inner) *= e == dim ? 1 : sizes[e];
      const int64_t from = transposed ? w.out : w.in, to = transposed ? w.in : w.out;
      std::vector<double> next(static_cast<size_t>(outer * to * inner), 0);
      for (int64_t a = 0; a < outer; ++a)
        for (int64_t t = 0; t < to; ++t)
          for (int64_t f = 0; f < from; ++f) {
            const double weight = transposed ? matrix[static_cast<size_t>(f)][static_cast<size_t>(t)]
                                             : matrix[static_cast<size_t>(t)][static_cast<size_t>(f)];
            if (weight == 0) continue;
            for (int64_t c = 0; c < inner; ++c)
              next[static_cast<size_t>((a * to + t) * inner + c)] +=
                  weight * values[static_cast<size_t>((a * from + f) * inner + c)];
          }
      sizes[dim] = to;
      values = std::move(next);
    }
    return values;
  }

  void Check(const Map& map, DType type = DType::kFloat32, int64_t channels = 3, bool channels_last = false) {
    for (const bool transposed : {false, true}) {
      if (transposed && !ops::IsFloating(type)) continue;
      Sizes from = {2, channels}, to = {2, channels};
      for (const Window& w : map.windows) {
        from.push_back(transposed ? w.out : w.in);
        to.push_back(transposed ? w.in : w.out);
      }
      SCOPED_TRACE("kind " + std::to_string(static_cast<int>(map.kind)) + " " +
                   std::string(ops::Info(type).name) + (transposed ? " transposed " : " ") +
                   std::to_string(from.back()) + " to " + std::to_string(to.back()) +
                   (channels_last ? " channels last" : ""));
      TestTensor in(type, from, StridesOf(from, channels_last)), out(type, to, StridesOf(to, channels_last));
      Randomise(in, random_, {.low = -4, .high = 4});
      const absl::Status status = Run(map, transposed, in, out);
      ASSERT_TRUE(status.ok()) << status;
      EXPECT_TRUE(out.MarginsIntact());
      const std::vector<double> want = Apply(map, transposed, in);
      const double epsilon = type == DType::kFloat64 ? 1e-12 : ops::SizeOf(type) == 2 ? 2e-2 : 1e-4;
      for (int64_t i = 0; i < out.numel(); ++i) {
        const double value = want[static_cast<size_t>(i)];
        ASSERT_NEAR(static_cast<double>(out.At(i)), value, epsilon * (1 + std::fabs(value))) << i;
      }
    }
  }

  static Map Scaled(ResampleKind kind, const std::vector<std::pair<int64_t, int64_t>>& sizes,
                    bool half_pixel) {
    Map map = {.kind = kind, .half_pixel = half_pixel, .windows = {}};
    for (const auto& [in, out] : sizes) {
      const double scale = half_pixel || kind == ResampleKind::kNearest
                               ? static_cast<double>(in) / static_cast<double>(out)
                           : out > 1 ? static_cast<double>(in - 1) / static_cast<double>(out - 1)
                                     : 0;
      map.windows.push_back({.in = in, .out = out, .scale = scale});
    }
    return map;
  }
  static Window Pool(int64_t in, int64_t kernel, int64_t stride, int64_t padding, double weight = 0) {
    const int64_t out = (in + 2 * padding - kernel + stride - 1) / stride + 1;
    return {.in = in, .out = out, .kernel = kernel, .stride = stride, .padding = padding, .scale = weight};
  }

  std::mt19937_64 random_{7};
};

constexpr ResampleKind kScaledKinds[] = {ResampleKind::kNearest, ResampleKind::kLinear, ResampleKind::kCubic,
                                         ResampleKind::kLinearArea, ResampleKind::kCubicArea};

// Sizes whose positions are far from where rounding decides.
TEST_F(ResampleTest, ScaledMapsUpAndDown) {
  for (const ResampleKind kind : kScaledKinds) {
    for (const bool half_pixel : {false, true}) {
      for (const auto& sizes :
           {std::pair<int64_t, int64_t>{8, 16}, {16, 8}, {8, 27}, {32, 5}, {1, 4}, {4, 1}})
        Check(Scaled(kind, {sizes}, half_pixel), DType::kFloat64);
      Check(Scaled(kind, {{9, 16}, {16, 40}}, half_pixel), DType::kFloat64);
    }
  }
}

TEST_F(ResampleTest, EveryLayout) {
  for (const ResampleKind kind : kScaledKinds) {
    for (const bool channels_last : {false, true}) {
      for (const int64_t channels : {1, 3, 8, 45})
        Check(Scaled(kind, {{8, 16}, {16, 40}}, true), DType::kFloat32, channels, channels_last);
    }
  }
  Check(Scaled(ResampleKind::kLinear, {{4, 8}, {8, 4}, {8, 16}}, true), DType::kFloat32, 9, true);
}

TEST_F(ResampleTest, EveryFloatingType) {
  for (const DType type : {DType::kFloat16, DType::kBFloat16, DType::kFloat32, DType::kFloat64}) {
    Check(Scaled(ResampleKind::kLinear, {{8, 16}, {16, 40}}, true), type, 3);
    Check({.kind = ResampleKind::kAverage, .windows = {Pool(12, 3, 2, 1), Pool(17, 3, 2, 1)}}, type, 16,
          true);
  }
}

TEST_F(ResampleTest, Averages) {
  for (const bool include : {false, true}) {
    for (const double weight : {0.0, 0.2}) {
      for (const Window& w : {Pool(20, 2, 2, 0, weight), Pool(21, 3, 2, 1, weight), Pool(19, 5, 1, 2, weight),
                              Pool(30, 2, 7, 1, weight), Pool(9, 9, 9, 0, weight)})
        Check({.kind = ResampleKind::kAverage, .include_padding = include, .windows = {w, w}});
    }
  }
  for (const auto& [in, out] : {std::pair<int64_t, int64_t>{20, 7}, {7, 20}, {6, 1}, {1, 6}, {12, 4}})
    Check({.kind = ResampleKind::kAdaptive, .windows = {{.in = in, .out = out}, {.in = out, .out = in}}});
}

TEST_F(ResampleTest, Padding) {
  for (const ResampleKind kind : {ResampleKind::kReflect, ResampleKind::kReplicate}) {
    for (const DType type : {DType::kUInt8, DType::kInt64, DType::kFloat16, DType::kFloat32}) {
      Check({.kind = kind,
             .windows = {{.in = 9, .out = 17, .padding = 3}, {.in = 20, .out = 41, .padding = 2}}},
            type);
      Check(
          {.kind = kind, .windows = {{.in = 9, .out = 7, .padding = -2}, {.in = 5, .out = 9, .padding = 0}}},
          type, 8, true);
    }
  }
  Check({.kind = ResampleKind::kReplicate, .windows = {{.in = 1, .out = 12, .padding = 5}}});
  // Padding that cuts all elements but one off.
  Check({.kind = ResampleKind::kReplicate, .windows = {{.in = 4, .out = 5, .padding = -4}}});
  Check({.kind = ResampleKind::kReplicate, .windows = {{.in = 4, .out = 5, .padding = 5}}});
}

// Elements outside a window do not reach a result, not even times 0.
TEST_F(ResampleTest, InfinityStaysInItsWindow) {
  const Map map = {.kind = ResampleKind::kAverage, .windows = {Pool(20, 3, 2, 1)}};
  TestTensor in(DType::kFloat32, {2, 3, 20}), out(DType::kFloat32, {2, 3, map.windows[0].out});
  for (int64_t i = 0; i < in.numel(); ++i) in.Set(i, i % 20 == 0 ? INFINITY : 1);
  ASSERT_TRUE(Run(map, false, in, out).ok());
  for (int64_t i = 0; i < out.numel(); ++i)
    EXPECT_EQ(static_cast<double>(out.At(i)), i % map.windows[0].out == 0 ? INFINITY : 1) << i;
}

TEST_F(ResampleTest, NegativeZeroIsCopied) {
  TestTensor in(DType::kFloat32, {1, 1, 4}), out(DType::kFloat32, {1, 1, 8});
  for (int64_t i = 0; i < 4; ++i) in.Set(i, -0.0L);
  ASSERT_TRUE(Run(Scaled(ResampleKind::kNearest, {{4, 8}}, false), false, in, out).ok());
  for (int64_t i = 0; i < 8; ++i) EXPECT_TRUE(std::signbit(out.At(i))) << i;
}

// Whatever a client sends is refused, or stays within its operands.
TEST_F(ResampleTest, RandomAttributesStayInside) {
  const auto any = [&](int64_t most) {
    return static_cast<int64_t>(random_() % static_cast<uint64_t>(most));
  };
  int served = 0;
  for (int round = 0; round < 300; ++round) {
    Map map = {.kind = static_cast<ResampleKind>(any(9)), .half_pixel = any(2) == 0, .windows = {}};
    constexpr double kScales[] = {0, 1e-300, 1e-9, 0.01, 0.3, 1, 3, 1e5, 2e9, -1, NAN, INFINITY};
    constexpr int64_t kNumbers[] = {-4,        -1,       0, 1, 2, 3, 9, 1000, (int64_t{1} << 31) - 1,
                                    INT64_MAX, INT64_MIN};
    const auto number = [&] { return any(3) == 0 ? kNumbers[any(std::size(kNumbers))] : 1 + any(3); };
    for (int64_t d = 1 + any(2); d > 0; --d)
      map.windows.push_back({.in = any(9),
                             .out = any(9),
                             .kernel = number(),
                             .stride = number(),
                             .padding = number(),
                             .scale = kScales[any(std::size(kScales))]});
    const bool transposed = any(2) == 0;
    Sizes from = {2, 1 + any(9)}, to = from;
    for (const Window& w : map.windows) {
      from.push_back(transposed ? w.out : w.in);
      to.push_back(transposed ? w.in : w.out);
    }
    TestTensor in(DType::kFloat32, from), out(DType::kFloat32, to);
    served += Run(map, transposed, in, out).ok() ? 1 : 0;
    ASSERT_TRUE(out.MarginsIntact()) << "round " << round;
  }
  EXPECT_GT(served, 40);
}

}  // namespace
}  // namespace xpud::kernels
