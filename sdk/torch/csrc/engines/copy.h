// Copies between tensors on the device, and between device and host. Conversion runs on the device. Tensors
// of one copy have one shape, unless said otherwise.
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

// Copies `source`, broadcast to the shape of `target`, which is on another device, into `target`. Conversion
// runs on the device where fewer bytes have to go.
void CopyBetweenDevices(const at::Tensor& source, const at::Tensor& target);

// Sets all elements to `value`.
void Fill(const at::Tensor& target, const at::Scalar& value);

// Copies a tensor on the device into one on the host. If `non_blocking` is true and `target` is pinned
// memory, `target` may be written after this returns.
void CopyToHost(const at::Tensor& source, const at::Tensor& target, bool non_blocking);
// Copies a tensor on the host, broadcast, into one on the device. If `non_blocking` is true and `source` is
// pinned memory, `source` may be read after this returns.
void CopyFromHost(const at::Tensor& source, const at::Tensor& target, bool non_blocking);
// Reads `bytes` from the first element on. Waits, unless `non_blocking` is true and `target` is pinned
// memory.
void Download(const at::Tensor& source, void* target, size_t bytes, bool non_blocking);

// Returns whether both are the same elements, of the same type.
bool IsExactAlias(const at::Tensor& a, const at::Tensor& b);

// Returns the bytes as they are in memory, without pending conjugation and negation.
at::Tensor Plain(const at::Tensor& tensor);
// Returns `plain` with the conjugation and negation that are pending in `tensor`.
at::Tensor LikePending(const at::Tensor& plain, const at::Tensor& tensor);
// Views the same bytes as a dtype of the wire. Complex tensors gain a dimension.
at::Tensor Reinterpret(const at::Tensor& tensor);

}  // namespace xpud::shim
