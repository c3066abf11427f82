// Copies between tensors on the device, and between device and host. Conversion runs on the device.
#pragma once

#include <ATen/core/Tensor.h>

namespace xpud::shim {

// Returns a row-major tensor of dtype `type` with the values of `source`; `source` itself if it is one
// already.
at::Tensor ContiguousAs(const at::Tensor& source, at::ScalarType type);
inline at::Tensor Contiguous(const at::Tensor& source) {
  return source.is_contiguous() ? source : ContiguousAs(source, source.scalar_type());
}

// Copies `source`, broadcast to the shape of `target`, into `target`. Both must be on one device.
void CopyOnDevice(const at::Tensor& source, const at::Tensor& target);

// Sets all elements to `value`.
void Fill(const at::Tensor& target, const at::Scalar& value);

}  // namespace xpud::shim
