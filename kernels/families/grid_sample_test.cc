// Samples of grids and their gradients beside plain loops.
#include <cmath>
#include <limits>

#include "gtest/gtest.h"
#include "kernels/testing/device_test_fixture.h"
#include "kernels/testing/tensor.h"
#include "proto/ops/check.h"

namespace xpud::kernels {
namespace {

using ops::DType;
using Sizes = std::vector<int64_t>;

struct Case {
  int mode = 0, padding = 0;  // as the attributes
  bool align = false;
  Sizes in = {7, 9}, out = {5, 13};
  DType type = DType::kFloat64;
  bool channels_last = false;
  double reach = 1.5;  // positions are in [-reach, reach]
};

// An element of a dimension with its weight, and the weight's derivative by the grid's value.
struct Tap {
  int64_t at;
  double weight, slope;
};

double Keys(double x) {
  constexpr double kA = -0.75;
  x = std::fabs(x);
  if (x <= 1) return ((kA + 2) * x - (kA + 3)) * x * x + 1;
  return x < 2 ? ((kA * x - 5 * kA) * x + 8 * kA) * x - 4 * kA : 0;
}
// The derivative of Keys by x.
double KeysSlope(double x) {
  constexpr double kA = -0.75;
  const double y = std::fabs(x);
  const double slope = y <= 1  ? (3 * (kA + 2) * y - 2 * (kA + 3)) * y
                       : y < 2 ? (3 * kA * y - 10 * kA) * y + 8 * kA
                               : 0;
  return x < 0 ? -slope : slope;
}

// Moves a position into 0 .. size - 1, and multiplies `slope` by the derivative.
double Padded(const Case& c, double position, int64_t size, double& slope) {
  const double last = static_cast<double>(size - 1);
  if (c.padding == 0) return position;
  if (c.padding == 2) {
    const double low = c.align ? 0 : -0.5, high = c.align ? last : last + 0.5;
    if (low == high) return slope = 0;
    while (position < low || position > high) {
      position = position < low ? 2 * low - position : 2 * high - position;
      slope = -slope;
    }
  }
  if (position <= 0 || position >= last) slope = 0;
  return std::clamp(position, 0.0, last);
}

std::vector<Tap> TapsOf(const Case& c, double value, int64_t size) {
  const auto n = static_cast<double>(size);
  double slope = (c.align ? n - 1 : n) / 2;
  double position = c.align ? (value + 1) / 2 * (n - 1) : ((value + 1) * n - 1) / 2;
  if (c.mode == 2) {
    std::vector<Tap> taps;
    const double base = std::floor(position);
    for (int j = -1; j <= 2; ++j) {
      const double at = base + j;
      double ignored = 1;
      taps.push_back({static_cast<int64_t>(std::lround(Padded(c, at, size, ignored))), Keys(position - at),
                      KeysSlope(position - at) * slope});
    }
    return taps;
  }
  position = Padded(c, position, size, slope);
  if (c.mode == 1) return {{static_cast<int64_t>(std::nearbyint(position)), 1, 0}};
  const double base = std::floor(position), part = position - base;
  const auto first = static_cast<int64_t>(base);
  return {{first, 1 - part, -slope}, {first + 1, part, slope}};
}

class GridSampleTest : public DeviceTest {
 protected:
  static TestTensor Tensor(const Case& c, Sizes sizes) {
    if (!c.channels_last) return TestTensor(c.type, sizes);
    Sizes strides(sizes.size());
    int64_t next = sizes[1];
    for (size_t d = sizes.size(); d-- > 2; next *= sizes[d]) strides[d] = next;
    strides[0] = next;
    strides[1] = 1;
    return TestTensor(c.type, std::move(sizes), std::move(strides));
  }

  absl::Status Run(const char* row, std::vector<Operand> outputs, std::vector<Operand> inputs,
                   const Case& c) {
    const ops::Number attributes[] = {ops::Number::Integer(c.mode), ops::Number::Integer(c.padding),
                                      ops::Number::Integer(c.align ? 1 : 0)};
    const OpCall call = {.row = &ops::RowOf(row),
                         .compute = c.type,
                         .outputs = outputs,
                         .inputs = inputs,
                         .attributes = attributes};
    if (absl::Status status = ops::CheckCall(call); !status.ok()) return status;
    return device_.Run(*library_, call);
  }

  // Calls each(input element, output element, grid element, weight, slopes) for all elements around all
  // samples.
  void OverTaps(const Case& c, const TestTensor& grid, int64_t batch, int64_t channels, const auto& each) {
    int64_t samples = 1, plane = 1;
    for (const int64_t size : c.out) samples *= size;
    for (const int64_t size : c.in) plane *= size;
    const size_t spatial = c.in.size();
    for (int64_t i = 0; i < batch * samples; ++i) {
      struct Corner {
        int64_t at = 0;
        double weight = 1;
        std::vector<double> slopes = {};
        bool inside = true;
      };
      std::vector<Corner> corners = {{}};
      for (size_t d = 0; d < spatial; ++d) {  // from the first dimension, whose component is the last
        const auto component = static_cast<int64_t>(spatial - 1 - d);
        const auto value = static_cast<double>(grid.At(i * static_cast<int64_t>(spatial) + component));
        std::vector<Corner> next;
        for (const Corner& corner : corners) {
          for (const Tap& tap : TapsOf(c, value, c.in[d])) {
            Corner both = {corner.at * c.in[d] + tap.at, corner.weight * tap.weight, {}, corner.inside};
            both.inside &= tap.at >= 0 && tap.at < c.in[d];
            for (const double slope : corner.slopes) both.slopes.push_back(slope * tap.weight);
            both.slopes.push_back(corner.weight * tap.slope);
            next.push_back(both);
          }
        }
        corners = next;
      }
      for (const Corner& corner : corners) {
        if (!corner.inside) continue;
        for (int64_t channel = 0; channel < channels; ++channel) {
          const int64_t of = i / samples * channels + channel;
          each(of * plane + corner.at, of * samples + i % samples, i * static_cast<int64_t>(spatial),
               corner.weight, corner.slopes);
        }
      }
    }
  }

  static void ExpectNear(const TestTensor& got, const std::vector<double>& want, double epsilon) {
    EXPECT_TRUE(got.MarginsIntact());
    for (int64_t i = 0; i < got.numel(); ++i) {
      const double value = want[static_cast<size_t>(i)];
      ASSERT_NEAR(static_cast<double>(got.At(i)), value, epsilon * (1 + std::fabs(value))) << i;
    }
  }

  void Check(const Case& c) {
    SCOPED_TRACE("mode " + std::to_string(c.mode) + " padding " + std::to_string(c.padding) +
                 (c.align ? " aligned " : " ") + std::string(ops::Info(c.type).name) +
                 (c.channels_last ? " channels last" : ""));
    constexpr int64_t kBatch = 2, kChannels = 19;
    Sizes in = {kBatch, kChannels}, out = in, grid_sizes = {kBatch};
    for (const int64_t size : c.in) in.push_back(size);
    for (const int64_t size : c.out) out.push_back(size), grid_sizes.push_back(size);
    grid_sizes.push_back(static_cast<int64_t>(c.in.size()));
    TestTensor input = Tensor(c, in), gradient = Tensor(c, out), grid(c.type, grid_sizes);
    Randomise(input, random_, {.low = -1, .high = 1});
    Randomise(gradient, random_, {.low = -1, .high = 1});
    Randomise(grid, random_, {.low = -c.reach, .high = c.reach});
    TestTensor samples(c.type, out), of_input = Tensor(c, in), of_grid(c.type, grid_sizes);
    for (int64_t i = 0; i < of_input.numel(); ++i) of_input.Set(i, 1);  // gradients are added
    ASSERT_TRUE(Run("grid_sampler_2d", {samples.operand()}, {input.operand(), grid.operand()}, c).ok());
    ASSERT_TRUE(Run("grid_sampler_2d_backward", {of_input.operand(), of_grid.operand()},
                    {gradient.operand(), input.operand(), grid.operand()}, c)
                    .ok());
    std::vector<double> want(static_cast<size_t>(samples.numel()), 0);
    std::vector<double> want_input(static_cast<size_t>(of_input.numel()), 1);
    std::vector<double> want_grid(static_cast<size_t>(of_grid.numel()), 0);
    OverTaps(c, grid, kBatch, kChannels,
             [&](int64_t i, int64_t o, int64_t g, double weight, const std::vector<double>& slopes) {
               const auto element = static_cast<double>(input.At(i)),
                          arrives = static_cast<double>(gradient.At(o));
               want[static_cast<size_t>(o)] += weight * element;
               want_input[static_cast<size_t>(i)] += weight * arrives;
               for (size_t d = 0; d < slopes.size(); ++d)
                 want_grid[static_cast<size_t>(g) + slopes.size() - 1 - d] += slopes[d] * element * arrives;
             });
    const double epsilon = c.type == DType::kFloat64 ? 1e-9 : c.type == DType::kFloat32 ? 1e-3 : 6e-2;
    ExpectNear(samples, want, epsilon);
    ExpectNear(of_input, want_input, epsilon);
    ExpectNear(of_grid, want_grid, 10 * epsilon);
  }

  std::mt19937_64 random_{7};
};

TEST_F(GridSampleTest, EveryModeOfPlanes) {
  for (const int mode : {0, 1, 2}) {
    for (const int padding : {0, 1, 2}) {
      for (const bool align : {false, true}) {
        for (const bool last : {false, true})
          Check({.mode = mode, .padding = padding, .align = align, .channels_last = last});
      }
    }
  }
}

TEST_F(GridSampleTest, EveryModeOfVolumes) {
  for (const int mode : {0, 1}) {
    for (const int padding : {0, 1, 2}) {
      for (const bool align : {false, true})
        Check({.mode = mode, .padding = padding, .align = align, .in = {3, 5, 4}, .out = {2, 3, 9}});
    }
  }
}

TEST_F(GridSampleTest, OtherTypes) {
  for (const DType type : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
    for (const int mode : {0, 2})
      Check({.mode = mode, .padding = 1, .align = true, .in = {4, 3}, .type = type});
  }
}

TEST_F(GridSampleTest, PlanesOfOneElement) {
  for (const int padding : {0, 1, 2}) {
    for (const bool align : {false, true})
      Check({.padding = padding, .align = align, .in = {1, 1}, .reach = 0.9});
  }
}

// Positions far outside, and those that are no numbers, read and write nothing else.
TEST_F(GridSampleTest, AnyPositionStaysInside) {
  for (const DType type : {DType::kFloat32, DType::kFloat64}) {
    for (const int mode : {0, 1, 2}) {
      for (const int padding : {0, 1, 2}) {
        const Case c = {.mode = mode, .padding = padding, .type = type};
        TestTensor input(type, {2, 3, 7, 9}), grid(type, {2, 4, 20, 2}), samples(type, {2, 3, 4, 20});
        TestTensor of_input(type, {2, 3, 7, 9}), of_grid(type, {2, 4, 20, 2}), gradient(type, {2, 3, 4, 20});
        Randomise(input, random_);
        Randomise(grid, random_, {.low = -3, .high = 3, .specials = true});
        ASSERT_TRUE(Run("grid_sampler_2d", {samples.operand()}, {input.operand(), grid.operand()}, c).ok());
        ASSERT_TRUE(Run("grid_sampler_2d_backward", {of_input.operand(), of_grid.operand()},
                        {gradient.operand(), input.operand(), grid.operand()}, c)
                        .ok());
        EXPECT_TRUE(samples.MarginsIntact() && of_input.MarginsIntact() && of_grid.MarginsIntact());
      }
    }
  }
}

}  // namespace
}  // namespace xpud::kernels
