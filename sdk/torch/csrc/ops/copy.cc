// Copies between tensors, from and to the host, and reading one element.
#include <ATen/ATen.h>
#include <ATen/Dispatch_v2.h>
#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>
#include <torch/library.h>

#include <cstring>

#include "sdk/torch/csrc/call/kernel.h"
#include "sdk/torch/csrc/call/operand.h"
#include "sdk/torch/csrc/engines/copy.h"
#include "sdk/torch/csrc/runtime/storage.h"

namespace xpud::shim {
namespace {

void CheckBroadcasts(const at::Tensor& self, const at::Tensor& target) {
  if (self.sizes() == target.sizes()) return;
  const auto shape = at::infer_size(target.sizes(), self.sizes());
  TORCH_CHECK(target.sizes() == shape, "output with shape ", target.sizes(),
              " doesn't match the broadcast shape ", c10::IntArrayRef(shape));
}

at::Tensor CopyFrom(const at::Tensor& self, const at::Tensor& target, bool non_blocking) {
  CheckBroadcasts(self, target);
  if (target.numel() == 0) return target;
  const bool from_device = self.device().type() == kDeviceType;
  const bool to_device = target.device().type() == kDeviceType;
  // Another accelerator of PyTorch: by way of the host.
  if (!from_device && !self.device().is_cpu()) return CopyFrom(self.cpu(), target, false);
  if (!to_device && !target.device().is_cpu()) return target.copy_(self.cpu());
  const at::Tensor source = !to_device ? self.expand(target.sizes()) : self;
  at::assert_no_internal_overlap(target);
  if (from_device && to_device && self.device() == target.device()) {
    if (!IsExactAlias(self, target)) at::assert_no_partial_overlap(target, self);
    CopyOnDevice(source, target);
  } else if (from_device && to_device) {
    CopyBetweenDevices(source, target);
  } else if (from_device) {
    CopyToHost(source, target, non_blocking);
  } else {
    CopyFromHost(source, target, non_blocking);
  }
  return target;
}

at::Tensor CopyFromAndResize(const at::Tensor& self, const at::Tensor& target) {
  if (self.sizes() != target.sizes()) target.resize_(self.sizes());
  return CopyFrom(self, target, false);
}

at::Scalar LocalScalarDense(const at::Tensor& self) {
  TORCH_CHECK(self.numel() > 0, "_local_scalar_dense: Empty tensor not supported");
  alignas(16) std::byte bytes[16] = {};
  Download(self, bytes, self.itemsize(), /*non_blocking=*/false);
  at::Scalar result;
  AT_DISPATCH_V2(self.scalar_type(), "_local_scalar_dense", AT_WRAP([&] {
                   scalar_t value;
                   std::memcpy(&value, bytes, sizeof(value));
                   result = at::Scalar(value);
                 }),
                 AT_EXPAND(AT_ALL_TYPES_AND_COMPLEX), AT_EXPAND(AT_BAREBONES_UNSIGNED_TYPES),
                 AT_EXPAND(AT_FLOAT8_TYPES), at::kComplexHalf, at::kHalf, at::kBool, at::kBFloat16);
  return result;
}

// PyTorch copies lazily where a write is noticed by the address that it asks for. Device memory has none, so
// this copies at once: the whole storage, so that offset and strides stay.
at::Tensor LazyClone(const at::Tensor& self) {
  const at::Tensor plain = Plain(self);
  const auto size = static_cast<int64_t>(plain.storage().nbytes());
  const auto options = plain.options().dtype(at::kByte);
  const at::Tensor bytes = MakeEmpty({size}, at::kByte, plain.device());
  CopyOnDevice(at::empty({0}, options).set_(plain.storage(), 0, {size}, {1}), bytes);
  at::Tensor clone = at::empty({0}, plain.options());
  clone.set_(bytes.storage(), plain.storage_offset(), plain.sizes(), plain.strides());
  return LikePending(clone, self);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_lazy_clone", XPUD_FN(LazyClone));
  m.impl("_copy_from", XPUD_FN(CopyFrom));
  m.impl("_copy_from_and_resize", XPUD_FN(CopyFromAndResize));
  m.impl("_local_scalar_dense", XPUD_FN(LocalScalarDense));
}
// The default kernels resolve the bit and call copy_ again, which would never end.
TORCH_LIBRARY_IMPL(aten, Conjugate, m) { m.impl("_copy_from", torch::CppFunction::makeFallthrough()); }
TORCH_LIBRARY_IMPL(aten, Negative, m) { m.impl("_copy_from", torch::CppFunction::makeFallthrough()); }

}  // namespace
}  // namespace xpud::shim
