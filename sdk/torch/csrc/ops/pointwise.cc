// Maps whose schema differs from the inputs of their row: modes, optional bounds, conditions, several
// outputs.
#include <ATen/ATen.h>
#include <ATen/MemoryOverlap.h>
#include <torch/library.h>

#include <limits>

#include "sdk/torch/csrc/call/command.h"
#include "sdk/torch/csrc/call/kernel.h"
#include "sdk/torch/csrc/engines/copy.h"
#include "sdk/torch/csrc/engines/map.h"
#include "sdk/torch/csrc/fallback/fallback.h"
#include "sdk/torch/csrc/runtime/generator.h"
#include "sdk/torch/csrc/runtime/storage.h"

namespace xpud::shim {
namespace {

using at::Tensor;
using OptionalScalar = std::optional<at::Scalar>;

void CheckApproximate(c10::string_view approximate) {
  TORCH_CHECK(approximate == "none" || approximate == "tanh",
              "approximate argument must be either none or tanh.");
}

Tensor Gelu(const Tensor& self, c10::string_view approximate) {
  CheckApproximate(approximate);
  static const ops::Row& exact = ops::RowOf("gelu");
  static const ops::Row& tanh = ops::RowOf("xpud::gelu_tanh");
  const MapInput inputs[] = {self};
  Tensor out;
  if (RunMap(approximate == "tanh" ? tanh : exact, inputs, out)) return out;
  return FallbackOf<at::_ops::gelu>::Call(self, approximate);
}

Tensor GeluBackward(const Tensor& gradient, const Tensor& self, c10::string_view approximate) {
  CheckApproximate(approximate);
  static const ops::Row& exact = ops::RowOf("gelu_backward");
  static const ops::Row& tanh = ops::RowOf("xpud::gelu_tanh_backward");
  const MapInput inputs[] = {gradient, self};
  Tensor out;
  if (RunMap(approximate == "tanh" ? tanh : exact, inputs, out)) return out;
  return FallbackOf<at::_ops::gelu_backward>::Call(gradient, self, approximate);
}

// Without one bound, this is clamp_min or clamp_max.
Tensor Clamp(const Tensor& self, const OptionalScalar& min, const OptionalScalar& max) {
  static const ops::Row& row = ops::RowOf("clamp");
  TORCH_CHECK(min.has_value() || max.has_value(),
              "torch.clamp: At least one of 'min' or 'max' must not be None");
  if (!max.has_value()) return at::clamp_min(self, *min);
  if (!min.has_value()) return at::clamp_max(self, *max);
  const at::ScalarType type = at::result_type(self, *min);
  CheckFits(*min, type);
  CheckFits(*max, type);
  const MapInput inputs[] = {self, {*min, true}, {*max, true}};
  Tensor out;
  if (RunMap(row, inputs, out)) return out;
  return FallbackOf<at::_ops::clamp>::Call(self, min, max);
}

Tensor ClampTensor(const Tensor& self, const OptionalTensor& min, const OptionalTensor& max) {
  static const ops::Row& row = ops::RowOf("clamp.Tensor");
  TORCH_CHECK(min.has_value() || max.has_value(),
              "torch.clamp: At least one of 'min' or 'max' must not be None");
  if (!max.has_value()) return at::clamp_min(self, *min);
  if (!min.has_value()) return at::clamp_max(self, *max);
  const MapInput inputs[] = {self, *min, *max};
  Tensor out;
  if (RunMap(row, inputs, out)) return out;
  return FallbackOf<at::_ops::clamp_Tensor>::Call(self, min, max);
}

Tensor Where(const Tensor& condition, const Tensor& self, const Tensor& other) {
  static const ops::Row& row = ops::RowOf("where.self");
  if (condition.scalar_type() == at::kBool) {
    const MapInput inputs[] = {condition, self, other};
    Tensor out;
    if (RunMap(row, inputs, out)) return out;
  }
  return FallbackOf<at::_ops::where_self>::Call(condition, self, other);
}

Tensor DivMode(const Tensor& self, const Tensor& other, std::optional<c10::string_view> mode) {
  static const ops::Row& floor = ops::RowOf("floor_divide");
  static const ops::Row& trunc = ops::RowOf("xpud::div_trunc");
  if (!mode.has_value()) return at::div(self, other);
  const MapInput inputs[] = {self, other};
  Tensor out;
  if (*mode == "floor" && RunMap(floor, inputs, out)) return out;
  if (*mode == "trunc" && RunMap(trunc, inputs, out)) return out;
  return FallbackOf<at::_ops::div_Tensor_mode>::Call(self, other, mode);
}

// ---- masked_fill ----

bool CanMaskFill(const Tensor& self, const Tensor& mask, at::ScalarType value) {
  static const ops::Row& row = ops::RowOf("masked_fill.Scalar");
  return IsOnDevice(self) && IsOnDevice(mask) && IsSupported(self.scalar_type(), row.dtypes) &&
         mask.device() == self.device() && mask.scalar_type() == at::kBool && IsSupported(value) &&
         at::has_internal_overlap(self) != at::MemOverlap::Yes;
}

Tensor& MaskFillInto(Tensor& out, const Tensor& self, const Tensor& mask, const MapInput& value) {
  static const ops::Row& row = ops::RowOf("masked_fill.Scalar");
  const MapInput inputs[] = {self, mask, value};
  LaunchMap(row, *ToDType(self.scalar_type()), {&out, 1}, inputs);
  return out;
}

Tensor& MaskedFillScalarInPlace(Tensor& self, const Tensor& mask, const at::Scalar& value) {
  if (!CanMaskFill(self, mask, value.type()))
    return FallbackOf<at::_ops::masked_fill__Scalar>::Call(self, mask, value);
  CheckFits(value, self.scalar_type());
  at::assert_no_partial_overlap(self, mask);
  const Tensor expanded = mask.expand(self.sizes());
  return MaskFillInto(self, self, expanded, MapInput(value, false));
}

Tensor& MaskedFillTensorInPlace(Tensor& self, const Tensor& mask, const Tensor& value) {
  TORCH_CHECK(value.dim() == 0,
              "masked_fill_ only supports a 0-dimensional value tensor, but got tensor with ", value.dim(),
              " dimension(s).");
  if (!CanMaskFill(self, mask, value.scalar_type()))
    return FallbackOf<at::_ops::masked_fill__Tensor>::Call(self, mask, value);
  // ATen refuses a value that does not fit. A value on the device is read only if it may not fit.
  const bool may_wrap =
      c10::isIntegralType(self.scalar_type(), false) && value.scalar_type() != self.scalar_type();
  if (value.is_cpu() || may_wrap) CheckFits(value.item(), self.scalar_type());
  at::assert_no_partial_overlap(self, mask);
  const Tensor expanded = mask.expand(self.sizes());
  return MaskFillInto(self, self, expanded, value);
}

// ---- dropout ----

std::tuple<Tensor, Tensor> NativeDropout(const Tensor& input, double p, std::optional<bool> train) {
  static const ops::Row& row = ops::RowOf("native_dropout");
  TORCH_CHECK(p >= 0 && p <= 1, "dropout probability has to be between 0 and 1, but got ", p);
  if (!IsOnDevice(input) || !IsSupported(input.scalar_type(), row.dtypes))
    return FallbackOf<at::_ops::native_dropout>::Call(input, p, train);
  if (!train.value_or(true)) return {input.clone(), at::ones_like(input, input.options().dtype(at::kBool))};
  if (p == 1) return {at::zeros_like(input), at::zeros_like(input, input.options().dtype(at::kBool))};
  const std::array<Tensor, 2> outs = {at::empty_like(input),
                                      at::empty_like(input, input.options().dtype(at::kBool))};
  if (input.numel() == 0) return {outs[0], outs[1]};
  const PhiloxState state =
      NextPhilox(std::nullopt, input.device().index(),
                 (static_cast<uint64_t>(input.numel()) * WordsOf(*ToDType(input.scalar_type())) + 3) / 4);
  const MapInput inputs[] = {input, {p, false}, {state.seed, false}, {state.offset, false}};
  LaunchMap(row, *ToDType(input.scalar_type()), outs, inputs);
  return {outs[0], outs[1]};
}

Tensor NativeDropoutBackward(const Tensor& gradient, const Tensor& mask, double scale) {
  static const ops::Row& row = ops::RowOf("native_dropout_backward");
  if (!IsOnDevice(gradient) || !IsSupported(gradient.scalar_type(), row.dtypes)) {
    return FallbackOf<at::_ops::native_dropout_backward>::Call(gradient, mask, scale);
  }
  const Tensor out = at::empty_like(gradient);
  const MapInput inputs[] = {gradient, mask, {scale, false}};
  LaunchMap(row, *ToDType(gradient.scalar_type()), {&out, 1}, inputs);
  return out;
}

int64_t LargestOf(at::ScalarType type) {
  const auto bits = static_cast<int64_t>(c10::elementSize(type)) * 8;
  return std::numeric_limits<int64_t>::max() >> (64 - bits + (type == at::kByte ? -1 : 0));
}

// Returns whether a divisor is positive and fits the integers' type.
bool HasIntegerRemainder(const Tensor& self, const at::Scalar& other) {
  return IsServed(self, ops::kIntegerTypes) && other.isIntegral(/*includeBool=*/false) &&
         other.toLong() > 0 && other.toLong() <= LargestOf(self.scalar_type());
}

// Of integers by a positive number: what floor_divide leaves, as `take_along_dim` wraps its indices.
Tensor RemainderScalar(const Tensor& self, const at::Scalar& other) {
  static const ops::Row& row = ops::RowOf("remainder.Scalar");
  if (HasIntegerRemainder(self, other)) return self.sub(at::floor_divide(self, other).mul_(other));
  const MapInput inputs[] = {self, {other, true}};
  Tensor out;
  if (RunMap(row, inputs, out)) return out;
  return FallbackOf<at::_ops::remainder_Scalar>::Call(self, other);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("remainder.Scalar", XPUD_FN(RemainderScalar));
  m.impl("gelu", XPUD_FN(Gelu));
  m.impl("gelu_backward", XPUD_FN(GeluBackward));
  m.impl("clamp", XPUD_FN(Clamp));
  m.impl("clamp.Tensor", XPUD_FN(ClampTensor));
  m.impl("where.self", XPUD_FN(Where));
  m.impl("div.Tensor_mode", XPUD_FN(DivMode));
  m.impl("masked_fill_.Scalar", XPUD_FN(MaskedFillScalarInPlace));
  m.impl("masked_fill_.Tensor", XPUD_FN(MaskedFillTensorInPlace));
  m.impl("native_dropout", XPUD_FN(NativeDropout));
  m.impl("native_dropout_backward", XPUD_FN(NativeDropoutBackward));
}

}  // namespace
}  // namespace xpud::shim
