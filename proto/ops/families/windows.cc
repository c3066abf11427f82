#include "proto/ops/families/windows.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"
#include "proto/ops/families/resample.h"
#include "proto/ops/families/unfold.h"
#include "proto/ops/rules.h"

namespace xpud::ops {
namespace {

// Sums and products of two numbers below this one do not overflow.
constexpr int64_t kMost = (int64_t{1} << 31) - 1;

using Windows = std::array<Window, kMaxSpatial>;

// Reads one integer for each window; `member` must be in [least, kMost].
absl::Status ReadList(const Integers& list, int spatial, int64_t Window::* member, int64_t least,
                      const char* name, Windows& windows) {
  if (list.size() != static_cast<size_t>(spatial))
    return absl::InvalidArgumentError(absl::StrCat(name, " has ", list.size(), " elements, not ", spatial));
  for (size_t d = 0; d < list.size(); ++d) {
    const int64_t value = list[d];
    if (value < least || value > kMost) return absl::InvalidArgumentError(absl::StrCat(name, " is ", value));
    windows[d].*member = value;
  }
  return absl::OkStatus();
}

// Sets the windows' sizes from the last `spatial` dimensions, and checks that the others are equal.
absl::Status SetSizes(const Operand& in, const Operand& out, int spatial, Windows& windows) {
  RETURN_IF_ERROR(NeedTensor(in, "input"));
  RETURN_IF_ERROR(NeedRank(out, "output", in.rank));
  const int leading = in.rank - spatial;
  if (spatial < 1 || spatial > kMaxSpatial || leading < 0)
    return absl::InvalidArgumentError(absl::StrCat(spatial, " spatial dimensions of ", Describe(in)));
  for (int d = 0; d < leading; ++d) {
    if (in.sizes[d] != out.sizes[d])
      return absl::InvalidArgumentError(
          absl::StrCat("output ", Describe(out), " does not fit input ", Describe(in)));
  }
  for (int d = 0; d < spatial; ++d) {
    Window& window = windows[static_cast<size_t>(d)];
    window.in = in.sizes[leading + d];
    window.out = out.sizes[leading + d];
    if (window.in > kMost || window.out > kMost || (window.in == 0 && out.numel() > 0))
      return absl::InvalidArgumentError(
          absl::StrCat("windows of ", Describe(in), " for output ", Describe(out)));
  }
  return absl::OkStatus();
}

bool IsArea(ResampleKind kind) {
  return kind == ResampleKind::kLinearArea || kind == ResampleKind::kCubicArea;
}

// The most inputs that an output reads, without the limit of the input's size.
int64_t ForwardTaps(const ResampleSpec& spec, const Window& window) {
  switch (spec.kind) {
    case ResampleKind::kAverage:
      return window.kernel;
    case ResampleKind::kAdaptive:
      return window.out == 0 ? 1 : window.in / window.out + (window.in % window.out == 0 ? 0 : 2);
    case ResampleKind::kLinear:
      return 2;
    case ResampleKind::kCubic:
      return 4;
    case ResampleKind::kLinearArea:
    case ResampleKind::kCubicArea:
      return 2 * static_cast<int64_t>(std::min(std::ceil(SupportOf(spec, window)), 0x1p31)) + 1;
    default:
      return 1;
  }
}

int64_t ScaledTaps(const ResampleSpec& spec, const Window& window) {
  const Reach reach = ReachOf(spec, window);
  const auto out = static_cast<double>(window.out);
  const double margin = 3 + 2 * out / 0x1p22;
  const double inside = (reach.high - reach.low) / window.scale;
  const double first = reach.high / window.scale - reach.shift;
  const double last = out - (static_cast<double>(window.in - 1) + reach.low) / window.scale + reach.shift;
  const double most = std::max({inside, first, last}) + margin;
  return most < out ? static_cast<int64_t>(std::ceil(most)) : window.out;  // also if the scale is 0
}

int64_t TransposedTaps(const ResampleSpec& spec, const Window& window) {
  switch (spec.kind) {
    case ResampleKind::kAverage:
      return (window.kernel + window.stride - 1) / window.stride;
    case ResampleKind::kAdaptive:
      return window.in == 0 ? 1 : window.out / window.in + 2;
    case ResampleKind::kReflect:
      return 3;
    case ResampleKind::kReplicate:
      return window.in == 1
                 ? window.out
                 : std::max({int64_t{1}, window.padding + 1, window.out - window.padding - window.in + 1});
    default:
      return ScaledTaps(spec, window);
  }
}

// Sets the number of windows along a dimension, which is at least 1.
absl::Status SetOutput(Window& window) {
  const int64_t room = window.in + 2 * window.padding - window.dilation * (window.kernel - 1) - 1;
  if (room < 0) return absl::InvalidArgumentError(absl::StrCat("no window fits a dimension of ", window.in));
  window.out = room / window.stride + 1;
  return absl::OkStatus();
}

// Reads the lists of a window's numbers, and sets the sizes of columns. `unfold` may fold.
template <typename Unfold>
absl::Status ReadUnfold(const Unfold& unfold, UnfoldSpec& spec) {
  Windows windows;
  RETURN_IF_ERROR(ReadList(unfold.kernel_size, 2, &Window::kernel, 1, "kernel_size", windows));
  RETURN_IF_ERROR(ReadList(unfold.dilation, 2, &Window::dilation, 1, "dilation", windows));
  RETURN_IF_ERROR(ReadList(unfold.padding, 2, &Window::padding, 0, "padding", windows));
  RETURN_IF_ERROR(ReadList(unfold.stride, 2, &Window::stride, 1, "stride", windows));
  for (size_t d = 0; d < 2; ++d) {
    windows[d].in = spec.windows[d].in;
    RETURN_IF_ERROR(SetOutput(windows[d]));
    spec.windows[d] = windows[d];
  }
  const auto product = [](int64_t a, int64_t b) { return static_cast<double>(a) * static_cast<double>(b); };
  const Window &h = spec.windows[0], &w = spec.windows[1];
  if (product(h.out, w.out) > 0x1p62 || product(h.kernel, w.kernel) > 0x1p62 ||
      product(h.kernel * w.kernel, spec.channels) > 0x1p62)
    return Invalid("its columns have more than 2^62 elements");
  spec.columns = spec.channels * h.kernel * w.kernel;
  spec.positions = h.out * w.out;
  return absl::OkStatus();
}

absl::Status CheckWindow(const ResampleSpec& spec, const Window& window) {
  if (!std::isfinite(window.scale) || window.scale < 0 || window.scale > 0x1p31)
    return absl::InvalidArgumentError(absl::StrCat("the scale is ", window.scale));
  if (spec.transposed && window.out == 0 && window.in > 0) return Invalid("the gradient is empty");
  const int64_t after = window.out - window.in - window.padding;
  if (spec.kind == ResampleKind::kReflect && std::max(window.padding, after) >= window.in && window.in > 0)
    return absl::InvalidArgumentError(absl::StrCat("reflects ", std::max(window.padding, after),
                                                   " elements of a dimension of ", window.in));
  // A table has an entry for each tap of each output.
  if (static_cast<double>(TapsOf(spec, window)) *
          static_cast<double>(spec.transposed ? window.in : window.out) >
      0x1p36)
    return absl::InvalidArgumentError("its windows have more than 2^36 elements");
  return absl::OkStatus();
}

}  // namespace

bool CopiesElements(const ResampleSpec& spec) {
  return !spec.transposed && (spec.kind == ResampleKind::kNearest || spec.kind == ResampleKind::kReflect ||
                              spec.kind == ResampleKind::kReplicate);
}

double SupportOf(const ResampleSpec& spec, const Window& window) {
  return (spec.kind == ResampleKind::kCubicArea ? 2.0 : 1.0) * std::max(window.scale, 1.0);
}

Reach ReachOf(const ResampleSpec& spec, const Window& window) {
  const double half = spec.half_pixel ? 0.5 : 0.0;
  if (spec.kind == ResampleKind::kNearest) return {0, 1, half};
  if (IsArea(spec.kind)) return {-SupportOf(spec, window) - 0.5, SupportOf(spec, window) + 1.5, 0.5};
  const double support = spec.kind == ResampleKind::kCubic ? 2 : 1;
  return {half - support, half + support, half};
}

int64_t TapsOf(const ResampleSpec& spec, const Window& window) {
  const int64_t taps = spec.transposed ? std::min(TransposedTaps(spec, window), window.out)
                                       : std::min(ForwardTaps(spec, window), window.in);
  return spec.transposed && spec.kind == ResampleKind::kReflect ? 3 : std::max<int64_t>(taps, 1);
}

bool IsIdentity(const ResampleSpec& spec, const Window& window) {
  if (window.in != window.out) return false;
  if (spec.kind == ResampleKind::kAverage)
    return window.kernel == 1 && window.stride == 1 && window.padding == 0 &&
           (window.scale == 0 || window.scale == 1);
  if (spec.kind == ResampleKind::kReflect || spec.kind == ResampleKind::kReplicate)
    return window.padding == 0;
  return spec.kind == ResampleKind::kAdaptive || (window.scale == 1 && !IsArea(spec.kind));
}

absl::StatusOr<ResampleSpec> ResampleOf(const Call& call) {
  const auto read = Read<ResampleCall>(call);
  ResampleSpec spec;
  if (read.kind < 0 || read.kind > kLastResampleKind)
    return absl::InvalidArgumentError(absl::StrCat("kind ", read.kind));
  spec.kind = static_cast<ResampleKind>(read.kind);
  spec.transposed = read.transposed;
  spec.half_pixel = read.half_pixel;
  spec.include_padding = read.include_padding;
  const Reals& scales = read.scale;
  spec.spatial = static_cast<int>(std::min<size_t>(scales.size(), kMaxRank));
  const Operand &self = *read.self, &out = *read.out;
  RETURN_IF_ERROR(
      SetSizes(spec.transposed ? out : self, spec.transposed ? self : out, spec.spatial, spec.windows));
  for (size_t d = 0; d < scales.size(); ++d) spec.windows[d].scale = scales[d];
  RETURN_IF_ERROR(ReadList(read.kernel, spec.spatial, &Window::kernel, 1, "kernel", spec.windows));
  RETURN_IF_ERROR(ReadList(read.stride, spec.spatial, &Window::stride, 1, "stride", spec.windows));
  RETURN_IF_ERROR(ReadList(read.padding, spec.spatial, &Window::padding, -kMost, "padding", spec.windows));
  for (size_t d = 0; d < scales.size(); ++d) RETURN_IF_ERROR(CheckWindow(spec, spec.windows[d]));
  return spec;
}

absl::StatusOr<MaxPoolSpec> MaxPoolOf(const MaxPoolAttributes& attributes, const Operand& in,
                                      const Operand& out) {
  MaxPoolSpec spec;
  spec.adaptive = attributes.adaptive;
  spec.spatial = static_cast<int>(std::min<size_t>(attributes.kernel.size(), kMaxRank));
  RETURN_IF_ERROR(SetSizes(in, out, spec.spatial, spec.windows));
  RETURN_IF_ERROR(ReadList(attributes.kernel, spec.spatial, &Window::kernel, 1, "kernel", spec.windows));
  RETURN_IF_ERROR(ReadList(attributes.stride, spec.spatial, &Window::stride, 1, "stride", spec.windows));
  RETURN_IF_ERROR(ReadList(attributes.padding, spec.spatial, &Window::padding, 0, "padding", spec.windows));
  RETURN_IF_ERROR(
      ReadList(attributes.dilation, spec.spatial, &Window::dilation, 1, "dilation", spec.windows));
  double plane = 1;
  for (const Window& window : spec.windows) plane *= static_cast<double>(window.in);
  if (plane >= 0x1p62) return absl::InvalidArgumentError(absl::StrCat("planes of ", Describe(in)));
  return spec;
}

absl::StatusOr<UnfoldSpec> UnfoldOf(const Call& call) {
  const bool folds = call.row->family == Family::kFold;
  const auto unfold = Read<UnfoldCall>(call);
  const auto fold = folds ? Read<FoldCall>(call) : FoldCall<Given>();
  UnfoldSpec spec;
  spec.self = folds ? fold.self : unfold.self;
  spec.out = folds ? fold.out : unfold.out;
  const Operand& self = *spec.self;
  const int rank = folds ? 2 : 3;  // without the batch
  RETURN_IF_ERROR(NeedTensor(self, "input"));
  if (self.rank != rank && self.rank != rank + 1)
    return absl::InvalidArgumentError(absl::StrCat("input ", Describe(self), " needs ", rank, " dimensions",
                                                   " without a batch, and ", rank + 1, " with one"));
  const int64_t* const sizes = &self.sizes[static_cast<size_t>(self.rank - rank)];
  spec.batch = self.rank == rank ? 1 : self.sizes[0];
  Windows images;
  if (folds) {
    RETURN_IF_ERROR(ReadList(fold.output_size, 2, &Window::in, 1, "output_size", images));
    RETURN_IF_ERROR(ReadList(fold.kernel_size, 2, &Window::kernel, 1, "kernel_size", images));
    spec.channels = sizes[0] / images[0].kernel / images[1].kernel;
  } else {
    for (size_t d = 0; d < 2; ++d) images[d].in = sizes[d + 1];
    spec.channels = sizes[0];
  }
  for (size_t d = 0; d < 2; ++d) spec.windows[d].in = images[d].in;
  if (std::min({spec.channels, images[0].in, images[1].in}) < 1 ||
      std::max(images[0].in, images[1].in) > kMost)
    return absl::InvalidArgumentError(absl::StrCat("windows of input ", Describe(self)));
  RETURN_IF_ERROR(folds ? ReadUnfold(fold, spec) : ReadUnfold(unfold, spec));
  if (folds && (sizes[0] != spec.columns || sizes[1] != spec.positions))
    return absl::InvalidArgumentError(absl::StrCat("input ", Describe(self), " needs ", spec.columns,
                                                   " columns of ", spec.positions, " windows"));
  return spec;
}

}  // namespace xpud::ops
