// Linear maps along the last dimensions, by the rows of family `resample`: average pooling, reflection and
// replication padding, interpolation. ATen's meta kernels check arguments and choose sizes and strides, or
// the fallback does for operators without one: invalid calls go there.
#include <ATen/ATen.h>
#include <ATen/MetaFunctions.h>
#include <ATen/native/UpSample.h>
#include <torch/library.h>

#include "proto/ops/families/resample.h"
#include "proto/ops/families/windows.h"
#include "sdk/torch/csrc/engines/interpolate_bytes.h"
#include "sdk/torch/csrc/engines/windows.h"
#include "sdk/torch/csrc/fallback/fallback.h"

namespace xpud::shim {
namespace {

using at::Tensor;
using c10::IntArrayRef;
using ops::ResampleKind;
using PerDimension = c10::SmallVector<int64_t, ops::kMaxSpatial>;
using Scales = c10::SmallVector<double, ops::kMaxSpatial>;
using Scale = std::optional<double>;

// The attributes of a call, with an element for each spatial dimension.
struct LinearMap {
  explicit LinearMap(ResampleKind k, size_t spatial, bool gradient)
      : kind(k),
        transposed(gradient),
        scale(spatial, 1.0),
        kernel(spatial, 1),
        stride(spatial, 1),
        padding(spatial, 0) {}

  void Run(const Tensor& self, const Tensor& out) const;

  ResampleKind kind;
  bool transposed;
  bool half_pixel = false;
  bool include_padding = false;
  Scales scale;
  PerDimension kernel, stride, padding;
};

void LinearMap::Run(const Tensor& self, const Tensor& out) const {
  static const ops::Row& row = ops::RowOf("avg_pool2d");
  if (out.numel() == 0) return;
  if (self.numel() == 0) {
    out.zero_();
    return;
  }
  Send(row,
       ops::ResampleCall<TensorRef>{.out = Describe(out),
                                    .self = Describe(self),
                                    .kind = static_cast<int64_t>(kind),
                                    .transposed = transposed,
                                    .half_pixel = half_pixel,
                                    .include_padding = include_padding,
                                    .scale = ops::NumberList(scale),
                                    .kernel = ops::NumberList(kernel),
                                    .stride = ops::NumberList(stride),
                                    .padding = ops::NumberList(padding)},
       self);
}

// ---- average pooling

LinearMap Average(IntArrayRef kernel, IntArrayRef stride, IntArrayRef padding, bool include_padding,
                  std::optional<int64_t> divisor, size_t spatial, bool transposed) {
  LinearMap map(ResampleKind::kAverage, spatial, transposed);
  map.include_padding = include_padding;
  for (size_t d = 0; d < spatial; ++d) {
    map.kernel[d] = ElementOf(kernel, d);
    map.stride[d] = ElementOf(stride.empty() ? kernel : stride, d);
    map.padding[d] = ElementOf(padding, d);
    map.scale[d] = divisor.has_value() ? 1 : 0;
  }
  if (divisor.has_value()) map.scale[0] = 1 / static_cast<double>(*divisor);
  return map;
}

bool IsServedAverage(const Tensor& tensor, std::optional<int64_t> divisor) {
  return IsServed(tensor, ops::kFloatTypes) && divisor.value_or(1) >= 0;
}

template <class Op, auto meta, size_t spatial>
Tensor AveragePool(const Tensor& self, IntArrayRef kernel, IntArrayRef stride, IntArrayRef padding, bool ceil,
                   bool include_padding, std::optional<int64_t> divisor) {
  if (!IsServedAverage(self, divisor))
    return FallbackOf<Op>::Call(self, kernel, stride, padding, ceil, include_padding, divisor);
  Tensor out = EmptyAs(meta(MetaOf(self), kernel, stride, padding, ceil, include_padding, divisor), self);
  Average(kernel, stride, padding, include_padding, divisor, spatial, false).Run(self, out);
  return out;
}

template <class Op, auto meta, size_t spatial>
Tensor AveragePoolBackward(const Tensor& gradient, const Tensor& self, IntArrayRef kernel, IntArrayRef stride,
                           IntArrayRef padding, bool ceil, bool include_padding,
                           std::optional<int64_t> divisor) {
  if (!IsServedAverage(gradient, divisor) || gradient.scalar_type() != self.scalar_type()) {
    return FallbackOf<Op>::Call(gradient, self, kernel, stride, padding, ceil, include_padding, divisor);
  }
  Tensor out = EmptyAs(
      meta(MetaOf(gradient), MetaOf(self), kernel, stride, padding, ceil, include_padding, divisor), self);
  Average(kernel, stride, padding, include_padding, divisor, spatial, true).Run(gradient, out);
  return out;
}

// ATen keeps the memory format of images only.
Tensor EmptyAdaptive(const Tensor& self, IntArrayRef size) {
  return size.size() == 2 ? EmptySpatial(self, size)
                          : at::empty(EmptySpatial(MetaOf(self), size).sizes(), self.options());
}

template <class Op, size_t spatial>
Tensor AdaptiveAverage(const Tensor& self, IntArrayRef size) {
  bool valid = IsServed(self, ops::kFloatTypes) && size.size() == spatial && HasPlanes(self, spatial);
  for (const int64_t each : size) valid = valid && each >= 0;
  if (!valid) return FallbackOf<Op>::Call(self, size);
  Tensor out = EmptyAdaptive(self, size);
  LinearMap(ResampleKind::kAdaptive, spatial, false).Run(self, out);
  return out;
}

template <class Op, size_t spatial>
Tensor AdaptiveAverageBackward(const Tensor& gradient, const Tensor& self) {
  if (!IsServed(gradient, ops::kFloatTypes) || gradient.scalar_type() != self.scalar_type() ||
      !HasPlanes(self, spatial) || !HasPlanes(gradient, spatial) || !HasSamePlanes(gradient, self, spatial)) {
    return FallbackOf<Op>::Call(gradient, self);
  }
  Tensor out = EmptyAdaptive(self, self.sizes().slice(static_cast<size_t>(self.dim()) - spatial));
  LinearMap(ResampleKind::kAdaptive, spatial, true).Run(gradient, out);
  return out;
}

// ---- padding: pairs (before, after), the last dimension first

LinearMap Padding(ResampleKind kind, IntArrayRef padding, bool transposed) {
  const size_t spatial = padding.size() / 2;
  LinearMap map(kind, spatial, transposed);
  for (size_t d = 0; d < spatial; ++d) map.padding[d] = padding[2 * (spatial - 1 - d)];
  return map;
}

// Returns the last sizes of `self` with padding, or an empty list if ATen would refuse it.
PerDimension PaddedSizes(const Tensor& self, IntArrayRef padding, ResampleKind kind, size_t spatial) {
  PerDimension sizes;
  if (padding.size() != 2 * spatial || !HasPlanes(self, static_cast<int64_t>(spatial))) return sizes;
  for (size_t d = 0; d < spatial; ++d) {
    const int64_t before = padding[2 * (spatial - 1 - d)], after = padding[2 * (spatial - 1 - d) + 1];
    const int64_t size = self.size(self.dim() - static_cast<int64_t>(spatial - d));
    const bool reflects = kind != ResampleKind::kReflect || (before < size && after < size);
    if (!reflects || size + before + after < 1) return {};
    sizes.push_back(size + before + after);
  }
  return sizes;
}

// ATen keeps the memory format of four dimensions, also if they are a volume without a batch.
Tensor EmptyPadded(const Tensor& self, IntArrayRef spatial) {
  const auto format = spatial.size() == 1 ? at::MemoryFormat::Contiguous : self.suggest_memory_format();
  return at::empty(EmptySpatial(MetaOf(self), spatial).sizes(), self.options(), format);
}

template <class Op, ResampleKind kind, size_t spatial>
Tensor Pad(const Tensor& self, IntArrayRef padding) {
  if (!IsServed(self, ops::kNumericTypes)) return FallbackOf<Op>::Call(self, padding);
  const PerDimension sizes = PaddedSizes(self, padding, kind, spatial);
  if (sizes.empty()) return FallbackOf<Op>::Call(self, padding);
  Tensor out = EmptyPadded(self, sizes);
  Padding(kind, padding, false).Run(self, out);
  return out;
}

template <class Op, ResampleKind kind, size_t spatial>
Tensor PadBackward(const Tensor& gradient, const Tensor& self, IntArrayRef padding) {
  bool valid = IsServed(gradient, ops::kFloatTypes) && gradient.scalar_type() == self.scalar_type();
  const PerDimension sizes = valid ? PaddedSizes(self, padding, kind, spatial) : PerDimension();
  valid = valid && !sizes.empty() && HasSamePlanes(gradient, self, spatial) &&
          gradient.sizes().slice(static_cast<size_t>(gradient.dim()) - spatial) == IntArrayRef(sizes);
  if (!valid) return FallbackOf<Op>::Call(gradient, self, padding);
  Tensor out = EmptyPadded(self, self.sizes().slice(static_cast<size_t>(self.dim()) - spatial));
  Padding(kind, padding, true).Run(gradient, out);
  return out;
}

// ---- interpolation

// Returns the inputs for each output, in the precision of ATen's kernels.
double StepOf(const Tensor& tensor, int64_t in, int64_t out, bool align, Scale scale) {
  if (tensor.scalar_type() == at::kDouble)
    return at::native::area_pixel_compute_scale<double>(in, out, align, scale);
  return at::native::area_pixel_compute_scale<float>(in, out, align, scale);
}

// `in` and `out`: the last sizes of the map's input and output.
LinearMap Interpolation(ResampleKind kind, const Tensor& tensor, IntArrayRef in, IntArrayRef out,
                        bool half_pixel, bool align, std::initializer_list<Scale> scales, bool transposed) {
  LinearMap map(kind, out.size(), transposed);
  map.half_pixel = half_pixel;
  for (size_t d = 0; d < out.size(); ++d)
    map.scale[d] = StepOf(tensor, in[d], out[d], align, scales.begin()[d]);
  return map;
}

IntArrayRef Last(IntArrayRef sizes, IntArrayRef like) { return sizes.slice(sizes.size() - like.size()); }

// ATen's kernels for images or channels last, and those of gradients, ignore given scales for these sizes.
void UseSizesOnly(LinearMap& map, IntArrayRef in, IntArrayRef out) {
  for (size_t d = 0; d < out.size(); ++d)
    if (out[d] == in[d] || out[d] == 2 * in[d]) map.scale[d] = out[d] == in[d] ? 1 : 0.5;
}

bool IsChannelsLast(const Tensor& self) {
  return self.is_contiguous(at::MemoryFormat::ChannelsLast) ||
         self.is_contiguous(at::MemoryFormat::ChannelsLast3d);
}

template <class Op, auto meta, bool exact, class... Each>
Tensor Nearest(const Tensor& self, IntArrayRef size, Each... scales) {
  if (!IsServed(self, ops::kFloatTypes | ops::SetOf(ops::DType::kUInt8)))
    return FallbackOf<Op>::Call(self, size, scales...);
  Tensor out = EmptyAs(meta(MetaOf(self), size, scales...), self);
  const IntArrayRef in = Last(self.sizes(), size);
  LinearMap map = Interpolation(ResampleKind::kNearest, self, in, size, exact, false, {scales...}, false);
  if (!exact && (size.size() == 2 || IsChannelsLast(self))) UseSizesOnly(map, in, size);
  map.Run(self, out);
  return out;
}

template <class Op, auto meta, bool exact, class... Each>
Tensor NearestBackward(const Tensor& gradient, IntArrayRef size, IntArrayRef input, Each... scales) {
  if (!IsServed(gradient, ops::kFloatTypes)) return FallbackOf<Op>::Call(gradient, size, input, scales...);
  Tensor out = EmptyAs(meta(MetaOf(gradient), size, input, scales...), gradient);
  const IntArrayRef in = Last(input, size);
  LinearMap map = Interpolation(ResampleKind::kNearest, gradient, in, size, exact, false, {scales...}, true);
  if (!exact) UseSizesOnly(map, in, size);
  map.Run(gradient, out);
  return out;
}

template <class Op, auto meta, ResampleKind kind, class... Each>
Tensor Interpolate(const Tensor& self, IntArrayRef size, bool align, Each... scales) {
  if constexpr (sizeof...(scales) == 2) {
    if (IsServed(self, ops::SetOf(ops::DType::kUInt8)) && self.numel() > 0) {
      Tensor out = EmptyAs(meta(MetaOf(self), size, align, scales...), self);
      InterpolateBytes(self, out, kind, align, {scales...});
      return out;
    }
  }
  if (!IsServed(self, ops::kFloatTypes)) return FallbackOf<Op>::Call(self, size, align, scales...);
  Tensor out = EmptyAs(meta(MetaOf(self), size, align, scales...), self);
  Interpolation(kind, self, Last(self.sizes(), size), size, !align, align, {scales...}, false).Run(self, out);
  return out;
}

template <class Op, auto meta, ResampleKind kind, class... Each>
Tensor InterpolateBackward(const Tensor& gradient, IntArrayRef size, IntArrayRef input, bool align,
                           Each... scales) {
  if (!IsServed(gradient, ops::kFloatTypes))
    return FallbackOf<Op>::Call(gradient, size, input, align, scales...);
  Tensor out = EmptyAs(meta(MetaOf(gradient), size, input, align, scales...), gradient);
  Interpolation(kind, gradient, Last(input, size), size, !align, align, {scales...}, true).Run(gradient, out);
  return out;
}

// ---- registration

void ImplementPooling(torch::Library& m) {
  Implement<&AveragePool<XPUD_ATEN(avg_pool2d), 2>>(m, "avg_pool2d");
  Implement<&AveragePool<XPUD_ATEN(avg_pool3d), 3>>(m, "avg_pool3d");
  Implement<&AveragePoolBackward<XPUD_ATEN(avg_pool2d_backward), 2>>(m, "avg_pool2d_backward");
  Implement<&AveragePoolBackward<XPUD_ATEN(avg_pool3d_backward), 3>>(m, "avg_pool3d_backward");
  Implement<&AdaptiveAverage<at::_ops::_adaptive_avg_pool2d, 2>>(m, "_adaptive_avg_pool2d");
  Implement<&AdaptiveAverage<at::_ops::_adaptive_avg_pool3d, 3>>(m, "_adaptive_avg_pool3d");
  Implement<&AdaptiveAverageBackward<at::_ops::_adaptive_avg_pool2d_backward, 2>>(
      m, "_adaptive_avg_pool2d_backward");
  Implement<&AdaptiveAverageBackward<at::_ops::_adaptive_avg_pool3d_backward, 3>>(
      m, "_adaptive_avg_pool3d_backward");
}

template <class Op, class Backward, ResampleKind kind, size_t spatial>
void ImplementPad(torch::Library& m, const std::string& name) {
  Implement<&Pad<Op, kind, spatial>>(m, name);
  Implement<&PadBackward<Backward, kind, spatial>>(m, name + "_backward");
}

void ImplementPadding(torch::Library& m) {
  constexpr auto kReflect = ResampleKind::kReflect, kReplicate = ResampleKind::kReplicate;
  using namespace at::_ops;
  ImplementPad<reflection_pad1d, reflection_pad1d_backward, kReflect, 1>(m, "reflection_pad1d");
  ImplementPad<reflection_pad2d, reflection_pad2d_backward, kReflect, 2>(m, "reflection_pad2d");
  ImplementPad<reflection_pad3d, reflection_pad3d_backward, kReflect, 3>(m, "reflection_pad3d");
  ImplementPad<replication_pad1d, replication_pad1d_backward, kReplicate, 1>(m, "replication_pad1d");
  ImplementPad<replication_pad2d, replication_pad2d_backward, kReplicate, 2>(m, "replication_pad2d");
  ImplementPad<replication_pad3d, replication_pad3d_backward, kReplicate, 3>(m, "replication_pad3d");
}

template <class Op, auto meta, class Backward, auto backward_meta, bool exact, class... Each>
void ImplementNearest(torch::Library& m, const std::string& name) {
  Implement<&Nearest<Op, meta, exact, Each...>>(m, name);
  Implement<&NearestBackward<Backward, backward_meta, exact, Each...>>(m, name + "_backward");
}

template <class Op, auto meta, class Backward, auto backward_meta, ResampleKind kind, class... Each>
void ImplementInterpolation(torch::Library& m, const std::string& name) {
  Implement<&Interpolate<Op, meta, kind, Each...>>(m, name);
  Implement<&InterpolateBackward<Backward, backward_meta, kind, Each...>>(m, name + "_backward");
}

void ImplementUpsampling(torch::Library& m) {
  constexpr auto kLinear = ResampleKind::kLinear, kCubic = ResampleKind::kCubic;
  constexpr auto kLinearArea = ResampleKind::kLinearArea, kCubicArea = ResampleKind::kCubicArea;
  using S = Scale;
  using namespace at::_ops;
  ImplementNearest<XPUD_ATEN(upsample_nearest1d), XPUD_ATEN(upsample_nearest1d_backward), false, S>(
      m, "upsample_nearest1d");
  ImplementNearest<XPUD_ATEN(upsample_nearest2d), XPUD_ATEN(upsample_nearest2d_backward), false, S, S>(
      m, "upsample_nearest2d");
  ImplementNearest<XPUD_ATEN(upsample_nearest3d), XPUD_ATEN(upsample_nearest3d_backward), false, S, S, S>(
      m, "upsample_nearest3d");
  ImplementNearest<XPUD_ATEN(_upsample_nearest_exact1d), XPUD_ATEN(_upsample_nearest_exact1d_backward), true,
                   S>(m, "_upsample_nearest_exact1d");
  ImplementNearest<XPUD_ATEN(_upsample_nearest_exact2d), XPUD_ATEN(_upsample_nearest_exact2d_backward), true,
                   S, S>(m, "_upsample_nearest_exact2d");
  ImplementNearest<XPUD_ATEN(_upsample_nearest_exact3d), XPUD_ATEN(_upsample_nearest_exact3d_backward), true,
                   S, S, S>(m, "_upsample_nearest_exact3d");
  ImplementInterpolation<XPUD_ATEN(upsample_linear1d), XPUD_ATEN(upsample_linear1d_backward), kLinear, S>(
      m, "upsample_linear1d");
  ImplementInterpolation<XPUD_ATEN(upsample_bilinear2d), XPUD_ATEN(upsample_bilinear2d_backward), kLinear, S,
                         S>(m, "upsample_bilinear2d");
  ImplementInterpolation<XPUD_ATEN(upsample_trilinear3d), XPUD_ATEN(upsample_trilinear3d_backward), kLinear,
                         S, S, S>(m, "upsample_trilinear3d");
  ImplementInterpolation<XPUD_ATEN(upsample_bicubic2d), XPUD_ATEN(upsample_bicubic2d_backward), kCubic, S, S>(
      m, "upsample_bicubic2d");
  ImplementInterpolation<XPUD_ATEN(_upsample_bilinear2d_aa), XPUD_ATEN(_upsample_bilinear2d_aa_backward),
                         kLinearArea, S, S>(m, "_upsample_bilinear2d_aa");
  ImplementInterpolation<XPUD_ATEN(_upsample_bicubic2d_aa), XPUD_ATEN(_upsample_bicubic2d_aa_backward),
                         kCubicArea, S, S>(m, "_upsample_bicubic2d_aa");
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  ImplementPooling(m);
  ImplementPadding(m);
  ImplementUpsampling(m);
}

}  // namespace
}  // namespace xpud::shim
