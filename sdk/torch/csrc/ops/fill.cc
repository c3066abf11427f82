// Sets all elements to a value.
#include <ATen/ATen.h>
#include <torch/library.h>

#include <complex>

#include "sdk/torch/csrc/call/kernel.h"
#include "sdk/torch/csrc/call/operand.h"
#include "sdk/torch/csrc/engines/copy.h"
#include "sdk/torch/csrc/engines/map.h"
#include "sdk/torch/csrc/fallback/fallback.h"

namespace xpud::shim {
namespace {

void FillComplex(const at::Tensor& self, const at::Scalar& value) {
  c10::complex<double> number = value.toComplexDouble();
  if (self.is_conj()) number = std::conj(number);
  if (self.is_neg()) number = -number;
  const at::Tensor parts = at::view_as_real(Plain(self));
  Fill(parts.select(-1, 0), number.real());
  Fill(parts.select(-1, 1), number.imag());
}

at::Tensor& FillScalar(at::Tensor& self, const at::Scalar& value) {
  if (self.numel() == 0) return self;
  CheckFits(value, self.scalar_type());
  if (self.is_complex()) {
    FillComplex(self, value);
    return self;
  }
  if (!IsSupported(self.scalar_type()) || value.isComplex())
    return FallbackOf<at::_ops::fill__Scalar>::Call(self, value);
  Fill(self, value);
  return self;
}

at::Tensor& FillTensor(at::Tensor& self, const at::Tensor& value) {
  TORCH_CHECK(value.dim() == 0, "fill_ only supports 0-dimension value tensor but got tensor with ",
              value.dim(), " dimensions.");
  self.copy_(value);
  return self;
}

at::Tensor& Zero(at::Tensor& self) {
  if (self.numel() > 0) Fill(IsSupported(self.scalar_type()) ? self : Reinterpret(Plain(self)), 0);
  return self;
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("fill_.Scalar", XPUD_FN(FillScalar));
  m.impl("fill_.Tensor", XPUD_FN(FillTensor));
  m.impl("zero_", XPUD_FN(Zero));
}

}  // namespace
}  // namespace xpud::shim
