// Products of integers, which wrap around as on the CPU.
#pragma once

#include <ATen/core/Tensor.h>

namespace xpud::shim {

// Returns whether IntegerProduct multiplies these matrices: on the device, of one type of at most 32 bits,
// with an inner dimension of at most 2^20, and none of 0.
bool HasIntegerProduct(const at::Tensor& a, const at::Tensor& b);

// Returns a b, of their dtype. REQUIRES: HasIntegerProduct(a, b); sizes that fit.
at::Tensor IntegerProduct(const at::Tensor& a, const at::Tensor& b);

// Returns a b as int32. REQUIRES: matrices of 8-bit numbers, those of b signed; sizes that fit,
// and none of 0.
at::Tensor ByteProduct(const at::Tensor& a, const at::Tensor& b);

}  // namespace xpud::shim
