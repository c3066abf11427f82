// Max pooling, its gradient, and max_unpool.
#include <ATen/ATen.h>
#include <ATen/MetaFunctions.h>
#include <ATen/native/Pool.h>
#include <torch/library.h>

#include "proto/ops/families/max_pool.h"
#include "proto/ops/families/windows.h"
#include "sdk/torch/csrc/call/kernel.h"
#include "sdk/torch/csrc/engines/windows.h"
#include "sdk/torch/csrc/fallback/fallback.h"

namespace xpud::shim {
namespace {

using at::Tensor;
using c10::IntArrayRef;
using Pair = std::tuple<Tensor, Tensor>;

// The windows of a call; an adaptive one needs no lists.
struct Windows {
  size_t spatial = 2;
  bool adaptive = true;
  IntArrayRef kernel = {}, stride = {}, padding = {}, dilation = {};
};

// The attributes of a call.
struct Attributes {
  explicit Attributes(const Windows& w)
      : adaptive(w.adaptive),
        kernel(ListOf(w, w.kernel, 1)),
        stride(ListOf(w, w.stride.empty() ? w.kernel : w.stride, 1)),
        padding(ListOf(w, w.padding, 0)),
        dilation(ListOf(w, w.dilation, 1)) {}
  // REQUIRES: this object outlives the call.
  operator ops::MaxPoolAttributes() const {  // NOLINT(google-explicit-constructor): a view of it
    return {
        .adaptive = adaptive, .kernel = kernel, .stride = stride, .padding = padding, .dilation = dilation};
  }

 private:
  // If the windows are adaptive, their numbers are `neutral`.
  static ops::NumberList ListOf(const Windows& w, IntArrayRef list, int64_t neutral) {
    c10::SmallVector<int64_t, ops::kMaxSpatial> numbers(w.spatial, neutral);
    for (size_t d = 0; d < w.spatial && !w.adaptive; ++d) numbers[d] = ElementOf(list, d);
    return ops::NumberList(numbers);
  }
  const bool adaptive;
  const ops::NumberList kernel, stride, padding, dilation;
};

// Makes the results like `values` and `indices`, which have no memory.
Pair Forward(const Tensor& self, const Windows& windows, const Pair& meta) {
  static const ops::Row& row = ops::RowOf("max_pool2d_with_indices");
  Pair out = {EmptyAs(std::get<0>(meta), self), EmptyAs(std::get<1>(meta), self)};
  const auto& [values, indices] = out;
  if (values.numel() == 0) return out;
  Send(row,
       ops::MaxPoolCall<TensorRef>{.values = Describe(values),
                                   .indices = Describe(indices),
                                   .self = Describe(self),
                                   .attributes = Attributes(windows)},
       self);
  return out;
}

Tensor Backward(const Tensor& gradient, const Tensor& indices, const Windows& windows, const Tensor& meta) {
  static const ops::Row& row = ops::RowOf("max_pool2d_with_indices_backward");
  Tensor out = EmptyAs(meta, gradient);
  if (out.numel() == 0) return out;
  if (gradient.numel() == 0) return out.zero_();
  Send(row,
       ops::MaxPoolBackwardCall<TensorRef>{.grad_input = Describe(out),
                                           .grad_output = Describe(gradient),
                                           .indices = Describe(indices),
                                           .attributes = Attributes(windows)},
       gradient);
  return out;
}

bool IsServedBackward(const Tensor& gradient, const Tensor& self, const Tensor& indices) {
  return IsServed(gradient, ops::kFloatTypes) && gradient.scalar_type() == self.scalar_type() &&
         indices.scalar_type() == at::kLong && gradient.sizes() == indices.sizes() &&
         gradient.dim() == self.dim();
}

Pair MaxPool2d(const Tensor& self, IntArrayRef kernel, IntArrayRef stride, IntArrayRef padding,
               IntArrayRef dilation, bool ceil) {
  using Op = at::_ops::max_pool2d_with_indices;
  if (!IsServed(self, ops::kNumericTypes))
    return FallbackOf<Op>::Call(self, kernel, stride, padding, dilation, ceil);
  return Forward(self, {2, false, kernel, stride, padding, dilation},
                 at::meta::max_pool2d_with_indices(MetaOf(self), kernel, stride, padding, dilation, ceil));
}

Tensor MaxPool2dBackward(const Tensor& gradient, const Tensor& self, IntArrayRef kernel, IntArrayRef stride,
                         IntArrayRef padding, IntArrayRef dilation, bool ceil, const Tensor& indices) {
  using Op = at::_ops::max_pool2d_with_indices_backward;
  if (!IsServedBackward(gradient, self, indices))
    return FallbackOf<Op>::Call(gradient, self, kernel, stride, padding, dilation, ceil, indices);
  return Backward(gradient, indices, {2, false, kernel, stride, padding, dilation},
                  at::meta::max_pool2d_with_indices_backward(MetaOf(gradient), MetaOf(self), kernel, stride,
                                                             padding, dilation, ceil, MetaOf(indices)));
}

// ---- in three dimensions: ATen has no meta kernel in C++, so invalid calls fall back, which raises its
// errors

bool IsList(IntArrayRef list) { return list.size() == 1 || list.size() == 3; }

// Returns the sizes of max_pool3d's planes, or an empty list if ATen would refuse it.
c10::SmallVector<int64_t, 3> PooledSizes(const Tensor& self, const Windows& w, bool ceil) {
  c10::SmallVector<int64_t, 3> sizes;
  if (!HasPlanes(self, 3) || !IsList(w.kernel) || !(w.stride.empty() || IsList(w.stride)) ||
      !IsList(w.padding) || !IsList(w.dilation))
    return sizes;
  for (size_t d = 0; d < 3; ++d) {
    const int64_t kernel = ElementOf(w.kernel, d), padding = ElementOf(w.padding, d);
    const int64_t stride = ElementOf(w.stride.empty() ? w.kernel : w.stride, d);
    const int64_t dilation = ElementOf(w.dilation, d), in = self.size(self.dim() - 3 + static_cast<int>(d));
    if (kernel < 1 || stride < 1 || dilation < 1 || padding < 0 || padding > kernel / 2) return {};
    const int64_t size = at::native::pooling_output_shape(in, kernel, padding, stride, dilation, ceil);
    if (size < 1) return {};
    sizes.push_back(size);
  }
  return sizes;
}

Pair MaxPool3d(const Tensor& self, IntArrayRef kernel, IntArrayRef stride, IntArrayRef padding,
               IntArrayRef dilation, bool ceil) {
  const Windows windows = {3, false, kernel, stride, padding, dilation};
  const auto sizes = PooledSizes(self, windows, ceil);
  if (!IsServed(self, ops::kNumericTypes) || sizes.empty()) {
    return FallbackOf<at::_ops::max_pool3d_with_indices>::Call(self, kernel, stride, padding, dilation, ceil);
  }
  const Tensor values = EmptySpatial(MetaOf(self), sizes);
  return Forward(self, windows, {values, values.to(at::kLong)});
}

Tensor MaxPool3dBackward(const Tensor& gradient, const Tensor& self, IntArrayRef kernel, IntArrayRef stride,
                         IntArrayRef padding, IntArrayRef dilation, bool ceil, const Tensor& indices) {
  const Windows windows = {3, false, kernel, stride, padding, dilation};
  const auto sizes = PooledSizes(self, windows, ceil);
  if (!IsServedBackward(gradient, self, indices) || sizes.empty() || !HasSamePlanes(gradient, self, 3) ||
      gradient.sizes().slice(static_cast<size_t>(gradient.dim()) - 3) != IntArrayRef(sizes)) {
    return FallbackOf<at::_ops::max_pool3d_with_indices_backward>::Call(gradient, self, kernel, stride,
                                                                        padding, dilation, ceil, indices);
  }
  const IntArrayRef whole = self.sizes().slice(static_cast<size_t>(self.dim()) - 3);
  return Backward(gradient, indices, windows, EmptySpatial(MetaOf(self), whole));
}

// ---- adaptive

template <class Op, auto meta, size_t spatial>
Pair AdaptiveMax(const Tensor& self, IntArrayRef size) {
  if (!IsServed(self, ops::kFloatTypes)) return FallbackOf<Op>::Call(self, size);
  return Forward(self, {spatial}, meta(MetaOf(self), size));
}

template <class Op, auto meta, size_t spatial>
Tensor AdaptiveMaxBackward(const Tensor& gradient, const Tensor& self, const Tensor& indices) {
  if (!IsServedBackward(gradient, self, indices)) return FallbackOf<Op>::Call(gradient, self, indices);
  return Backward(gradient, indices, {spatial}, meta(MetaOf(gradient), MetaOf(self), MetaOf(indices)));
}

// ---- max_unpool

bool IsServedUnpool(const Tensor& self, const Tensor& indices, IntArrayRef size, int64_t spatial) {
  bool served = IsServed(self, ops::kFloatTypes) && IsOnDevice(indices) &&
                indices.scalar_type() == at::kLong && indices.sizes() == self.sizes() &&
                HasPlanes(self, spatial) && static_cast<int64_t>(size.size()) == spatial;
  for (const int64_t each : size) served = served && each > 0;
  return served;
}

Tensor Unpool(const Tensor& self, const Tensor& indices, IntArrayRef size) {
  static const ops::Row& row = ops::RowOf("max_unpool2d");
  // Of values with one position, any may stay.
  at::globalContext().alertNotDeterministic(size.size() == 2 ? "max_unpooling2d_forward_out"
                                                             : "max_unpooling3d_forward_out");
  // As in ATen, volumes are not channels last.
  Tensor out = size.size() == 2 ? EmptySpatial(self, size)
                                : at::empty(EmptySpatial(MetaOf(self), size).sizes(), self.options());
  out.zero_();
  if (self.numel() == 0) return out;
  Send(row,
       ops::MaxUnpoolCall<TensorRef>{.out = Describe(out),
                                     .self = Describe(self),
                                     .indices = Describe(indices),
                                     .spatial = static_cast<int64_t>(size.size())},
       self);
  return out;
}

Tensor MaxUnpool2d(const Tensor& self, const Tensor& indices, IntArrayRef size) {
  if (!IsServedUnpool(self, indices, size, 2))
    return FallbackOf<at::_ops::max_unpool2d>::Call(self, indices, size);
  return Unpool(self, indices, size);
}

Tensor MaxUnpool3d(const Tensor& self, const Tensor& indices, IntArrayRef size, IntArrayRef stride,
                   IntArrayRef padding) {
  bool served = IsServedUnpool(self, indices, size, 3) && stride.size() == 3 && padding.size() == 3;
  for (const int64_t each : stride) served = served && each > 0;
  if (!served) return FallbackOf<at::_ops::max_unpool3d>::Call(self, indices, size, stride, padding);
  return Unpool(self, indices, size);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("max_pool2d_with_indices", XPUD_FN(MaxPool2d));
  m.impl("max_pool2d_with_indices_backward", XPUD_FN(MaxPool2dBackward));
  m.impl("max_pool3d_with_indices", XPUD_FN(MaxPool3d));
  m.impl("max_pool3d_with_indices_backward", XPUD_FN(MaxPool3dBackward));
  Implement<&AdaptiveMax<XPUD_ATEN(adaptive_max_pool2d), 2>>(m, "adaptive_max_pool2d");
  Implement<&AdaptiveMax<XPUD_ATEN(adaptive_max_pool3d), 3>>(m, "adaptive_max_pool3d");
  Implement<&AdaptiveMaxBackward<XPUD_ATEN(adaptive_max_pool2d_backward), 2>>(m,
                                                                              "adaptive_max_pool2d_backward");
  Implement<&AdaptiveMaxBackward<XPUD_ATEN(adaptive_max_pool3d_backward), 3>>(m,
                                                                              "adaptive_max_pool3d_backward");
  m.impl("max_unpool2d", XPUD_FN(MaxUnpool2d));
  m.impl("max_unpool3d", XPUD_FN(MaxUnpool3d));
}

}  // namespace
}  // namespace xpud::shim
