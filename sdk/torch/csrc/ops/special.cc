// Functions of single elements whose schema differs from the inputs of their row: polygamma, frexp,
// nan_to_num, rounding to decimals, Kaiser's window.
#include <ATen/ATen.h>
#include <ATen/Dispatch_v2.h>
#include <ATen/TensorIterator.h>
#include <ATen/native/Resize.h>
#include <ATen/native/UnaryOps.h>
#include <torch/library.h>

#include <cmath>
#include <limits>

#include "sdk/torch/csrc/call/command.h"
#include "sdk/torch/csrc/call/kernel.h"
#include "sdk/torch/csrc/engines/map.h"
#include "sdk/torch/csrc/fallback/fallback.h"

namespace xpud::shim {
namespace {

using at::Tensor;

// The n-th derivative of digamma: (-1)^(n + 1) n! zeta(n + 1, x).
Tensor Polygamma(int64_t n, const Tensor& self) {
  static const ops::Row& row = ops::RowOf("xpud::polygamma");
  TORCH_CHECK(n >= 0, "polygamma(n, x) does not support negative n.");
  if (n == 0) return at::digamma(self);
  const double order = static_cast<double>(n) + 1;
  const MapInput inputs[] = {self, {order, false}, {std::tgamma(order) * (n % 2 == 0 ? -1 : 1), false}};
  Tensor out;
  return RunMap(row, inputs, out) ? out : FallbackOf<at::_ops::polygamma>::Call(n, self);
}

std::tuple<Tensor, Tensor> Frexp(const Tensor& self) {
  static const ops::Row& row = ops::RowOf("xpud::frexp");
  TORCH_CHECK(at::isFloatingType(self.scalar_type()),
              "torch.frexp() only supports floating-point dtypes, but got ", self.scalar_type());
  if (!IsServed(self, row.dtypes)) return FallbackOf<at::_ops::frexp_Tensor>::Call(self);
  const Tensor outs[] = {at::empty_like(self), at::empty_like(self, self.options().dtype(at::kInt))};
  const MapInput inputs[] = {self};
  LaunchMap(row, *ToDType(self.scalar_type()), outs, inputs);
  return {outs[0], outs[1]};
}

std::tuple<Tensor&, Tensor&> FrexpOut(const Tensor& self, Tensor& mantissa, Tensor& exponent) {
  for (const Tensor& out : {mantissa, exponent}) CheckSameDevice(self.device(), out.device());
  TORCH_CHECK(mantissa.dtype() == self.dtype(), "torch.frexp() expects mantissa to have dtype ", self.dtype(),
              " but got ", mantissa.dtype());
  TORCH_CHECK(exponent.dtype() == at::kInt, "torch.frexp() expects exponent to have int dtype but got ",
              exponent.dtype());
  const auto [parts, powers] = Frexp(self);
  at::native::resize_output(mantissa, parts.sizes());
  at::native::resize_output(exponent, powers.sizes());
  mantissa.copy_(parts);
  exponent.copy_(powers);
  return {mantissa, exponent};
}

double LargestOf(at::ScalarType type) {
  return AT_DISPATCH_V2(type, "nan_to_num",
                        AT_WRAP([] { return static_cast<double>(std::numeric_limits<scalar_t>::max()); }),
                        AT_EXPAND(AT_FLOATING_TYPES), at::kHalf, at::kBFloat16);
}

Tensor& NanToNumOut(const Tensor& self, std::optional<double> nan, std::optional<double> high,
                    std::optional<double> low, Tensor& out) {
  static const ops::Row& row = ops::RowOf("xpud::nan_to_num");
  TORCH_CHECK(!out.defined() || self.scalar_type() == out.scalar_type(),
              "nan_to_num: dtype of out: ", out.scalar_type(),
              " should be same as input: ", self.scalar_type());
  if (c10::isIntegralType(self.scalar_type(), /*includeBool=*/true)) {
    if (!out.defined()) return out = self.clone();
    CheckSameDevice(self.device(), out.device());
    at::TensorIterator::unary_op(out, self);  // ATen's checks, and the output's shape
    return out.copy_(self);
  }
  if (IsServed(self, row.dtypes)) {
    if (!out.defined()) out = at::empty_like(self);  // as ATen does
    const double most = LargestOf(self.scalar_type());
    const MapInput inputs[] = {
        self, {nan.value_or(0), false}, {high.value_or(most), false}, {low.value_or(-most), false}};
    if (RunMap(row, inputs, out)) return out;
  }
  if (out.defined()) return FallbackOf<at::_ops::nan_to_num_out>::Call(self, nan, high, low, out);
  return out = FallbackOf<at::_ops::nan_to_num>::Call(self, nan, high, low);
}
Tensor NanToNum(const Tensor& self, std::optional<double> nan, std::optional<double> high,
                std::optional<double> low) {
  Tensor out;
  return NanToNumOut(self, nan, high, low, out);
}

// Positions before the point are negative.
Tensor RoundDecimals(const Tensor& self, int64_t decimals) {
  static const ops::Row &fraction = ops::RowOf("xpud::round_fraction"),
                        &whole = ops::RowOf("xpud::round_whole");
  if (decimals == 0) return at::round(self);
  const double power = std::pow(10.0, std::abs(static_cast<double>(decimals)));
  const MapInput inputs[] = {self, {power, false}};
  Tensor out;
  return RunMap(decimals > 0 ? fraction : whole, inputs, out)
             ? out
             : FallbackOf<at::_ops::round_decimals>::Call(self, decimals);
}

// i0(beta sqrt(1 - t^2)) / i0(beta), where t goes from -1 to 1. The iterator's input has the positions 0, 1,
// ...
void KaiserWindow(at::TensorIteratorBase& iterator, const int64_t length, const double beta) {
  const double middle = static_cast<double>(length - 1) / 2,
               peak = at::i0(at::scalar_tensor(beta, at::kDouble)).item<double>();
  const Tensor& out = iterator.tensor(0);
  const Tensor positions = iterator.tensor(1).to(out.scalar_type() == at::kDouble ? at::kDouble : at::kFloat);
  const Tensor t = positions.sub(middle).div_(middle);
  out.copy_(t.mul_(t).neg_().add_(1).clamp_min_(0).sqrt_().mul_(beta).i0_().div_(peak));
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("polygamma", XPUD_FN(Polygamma));
  m.impl("frexp.Tensor", XPUD_FN(Frexp));
  m.impl("frexp.Tensor_out", XPUD_FN(FrexpOut));
  m.impl("nan_to_num", XPUD_FN(NanToNum));
  m.impl("nan_to_num.out", XPUD_FN(NanToNumOut));
  m.impl("round.decimals", XPUD_FN(RoundDecimals));
}

}  // namespace
}  // namespace xpud::shim

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(kaiser_window_stub, &xpud::shim::KaiserWindow)
}  // namespace at::native
