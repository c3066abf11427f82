// Attributes of the families whose outputs read windows of the input's last dimensions: pooling, padding,
// resampling. Plain values; thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "absl/status/statusor.h"
#include "proto/ops/families/max_pool.h"
#include "proto/ops/operand.h"

namespace xpud::ops {

inline constexpr int kMaxSpatial = 3;

// A linear map along a dimension: each output is a weighted sum of inputs that are next to each other.
enum class ResampleKind : int64_t {
  kAverage = 0,   // of windows
  kAdaptive = 1,  // averages of windows that divide the input evenly
  kNearest = 2,
  kLinear = 3,
  kCubic = 4,       // Keys' kernel with a = -0.75
  kLinearArea = 5,  // antialiased: the triangle is as wide as the step
  kCubicArea = 6,   // antialiased: Keys' kernel with a = -0.5
  kReflect = 7,     // padding by reflection; the border is not repeated
  kReplicate = 8,   // padding with the border
};
inline constexpr int64_t kLastResampleKind = 8;

// A window along one dimension of `in` inputs and `out` outputs. Output o covers inputs
// o * stride - padding + j * dilation, j < kernel.
struct Window {
  int64_t in = 1, out = 1;
  int64_t kernel = 1, stride = 1, padding = 0, dilation = 1;
  double scale = 1;  // resampling: inputs for each output; averages: the weight, 0: one over the elements
};

struct ResampleSpec {
  ResampleKind kind = ResampleKind::kNearest;
  bool transposed = false;       // the gradient of the map: `self` has the sizes of the map's output
  bool half_pixel = false;       // positions are centres of pixels
  bool include_padding = false;  // in the number of elements of an average
  int spatial = 1;               // dimensions
  std::array<Window, kMaxSpatial> windows;
};

struct MaxPoolSpec {
  bool adaptive = false;
  int spatial = 1;
  std::array<Window, kMaxSpatial> windows;
};

// Windows of images [N, C, H, W] and their columns [N, C * kernel's elements, windows]. Neither has N, or
// both.
struct UnfoldSpec {
  const Operand *self = nullptr, *out = nullptr;
  int64_t batch = 1, channels = 0, columns = 0, positions = 0;  // columns, positions: sizes of the columns
  std::array<Window, 2> windows;
};

// Return InvalidArgument if an attribute is out of range for the sizes of `in` (the map's input) and `out`.
// Afterwards no sum or product of two of a window's numbers overflows.
absl::StatusOr<ResampleSpec> ResampleOf(const Call& call);
absl::StatusOr<MaxPoolSpec> MaxPoolOf(const MaxPoolAttributes& attributes, const Operand& in,
                                      const Operand& out);
// Families kUnfold and kFold, whose input is an image or columns.
absl::StatusOr<UnfoldSpec> UnfoldOf(const Call& call);

// Returns whether each element of the result is an element of the input, of any type.
bool CopiesElements(const ResampleSpec& spec);
// Returns the most inputs that an output of the map reads; if transposed, a bound on the outputs that read an
// input. At least 1.
int64_t TapsOf(const ResampleSpec& spec, const Window& window);
// Returns whether the map copies the dimension.
bool IsIdentity(const ResampleSpec& spec, const Window& window);
// Returns how far an input may be from the position of an output of an antialiased map.
double SupportOf(const ResampleSpec& spec, const Window& window);
// The outputs that read input i of a scaled map are in [(i + low) / scale - shift, (i + high) / scale -
// shift], except for inputs at the border.
struct Reach {
  double low = 0, high = 1, shift = 0;
};
Reach ReachOf(const ResampleSpec& spec, const Window& window);

}  // namespace xpud::ops
