// Copies between tensors on the device, and between it and the host, with conversion on the device.
#pragma once

#include <ATen/core/Tensor.h>

namespace xpud::shim {

// A row-major tensor of type `type` with the values of `source` (itself when it is that already).
at::Tensor ContiguousAs(const at::Tensor& source, at::ScalarType type);
inline at::Tensor Contiguous(const at::Tensor& source) {
  return source.is_contiguous() ? source : ContiguousAs(source, source.scalar_type());
}

// Copies `source` into `target`, which it is broadcast to; both on one device.
void CopyOnDevice(const at::Tensor& source, const at::Tensor& target);

// Sets all elements.
void Fill(const at::Tensor& target, const at::Scalar& value);

}  // namespace xpud::shim
