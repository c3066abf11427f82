// Creates, resizes and views tensors.
#include <ATen/EmptyTensor.h>
#include <ATen/native/Resize.h>
#include <ATen/native/ResizeCommon.h>
#include <ATen/native/TensorFactories.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/is_set_to_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_as_complex_native.h>
#include <ATen/ops/view_as_real_native.h>
#include <ATen/ops/view_native.h>
#include <torch/library.h>

#include "sdk/torch/csrc/call/kernel.h"
#include "sdk/torch/csrc/runtime/allocator.h"
#include "sdk/torch/csrc/runtime/storage.h"

namespace xpud::shim {
namespace {

// Fills new memory if deterministic algorithms are requested, as on all devices of PyTorch.
at::Tensor Filled(at::Tensor tensor) {
  if (at::globalContext().deterministicAlgorithms() &&
      at::globalContext().deterministicFillUninitializedMemory()) [[unlikely]]
    at::native::fill_empty_deterministic_(tensor);
  return tensor;
}

at::Tensor EmptyMemoryFormat(c10::IntArrayRef sizes, std::optional<at::ScalarType> type,
                             std::optional<at::Layout> layout, std::optional<c10::Device> device,
                             std::optional<bool> pin_memory, std::optional<at::MemoryFormat> format) {
  TORCH_CHECK(!pin_memory.value_or(false), "Only dense CPU tensors can be pinned");
  TORCH_CHECK_NOT_IMPLEMENTED(layout.value_or(at::kStrided) == at::kStrided, "XPUD has no layout ", *layout);
  const AllocationDevice scope(device);
  return Filled(at::Tensor(
      at::detail::empty_generic(sizes, GetAllocator(), kTensorKeys, c10::dtype_or_default(type), format)));
}

at::Tensor EmptyStrided(c10::IntArrayRef sizes, c10::IntArrayRef strides, std::optional<at::ScalarType> type,
                        std::optional<at::Layout>, std::optional<c10::Device> device,
                        std::optional<bool> pin_memory) {
  TORCH_CHECK(!pin_memory.value_or(false), "Only dense CPU tensors can be pinned");
  const AllocationDevice scope(device);
  return Filled(at::Tensor(at::detail::empty_strided_generic(sizes, strides, GetAllocator(), kTensorKeys,
                                                             c10::dtype_or_default(type))));
}

at::Tensor AsStrided(const at::Tensor& self, c10::IntArrayRef sizes, c10::IntArrayRef strides,
                     std::optional<int64_t> offset) {
  return at::native::as_strided_tensorimpl(self, sizes, strides, offset);
}

at::Tensor View(const at::Tensor& self, c10::IntArrayRef sizes) { return at::native::view(self, sizes); }

at::Tensor ReshapeAlias(const at::Tensor& self, c10::IntArrayRef sizes, c10::IntArrayRef strides) {
  return at::native::_reshape_alias(self, sizes, strides);
}

at::Tensor Unfold(const at::Tensor& self, int64_t dimension, int64_t size, int64_t step) {
  return at::native::unfold(self, dimension, size, step);
}

at::Tensor ViewAsReal(const at::Tensor& self) { return at::native::view_as_real(self); }

at::Tensor ViewAsComplex(const at::Tensor& self) { return at::native::view_as_complex(self); }

bool IsSetTo(const at::Tensor& self, const at::Tensor& other) { return at::native::is_set_to(self, other); }

bool IsDenseHere(const at::Tensor& tensor) {
  constexpr c10::DispatchKeySet kDense(c10::DispatchKey::Dense), kHere(c10::BackendComponent::PrivateUse1Bit);
  return tensor.key_set().has_any(kDense) && tensor.key_set().has_any(kHere);
}

// Called when a Parameter's data is set. Module.to calls it first and keeps its Parameters only if this is
// true. c10 leaves the decision for PrivateUse1 to the backend: our dense tensors are treated like dense CPU
// tensors.
bool HasCompatibleShallowCopyType(const at::Tensor& self, const at::Tensor& from) {
  constexpr c10::DispatchKeySet kCpu(c10::DispatchKey::CPU);
  if (IsDenseHere(self) && IsDenseHere(from)) return true;
  if (IsDenseHere(self)) return from.unsafeGetTensorImpl()->has_compatible_shallow_copy_type(kCpu);
  return self.unsafeGetTensorImpl()->has_compatible_shallow_copy_type(IsDenseHere(from) ? kCpu
                                                                                        : from.key_set());
}

void EnsureStorage(c10::TensorImpl& impl, size_t bytes) {
  if (bytes > impl.unsafe_storage().nbytes())
    ResizeStorage(*impl.unsafe_storage().unsafeGetStorageImpl(), bytes);
}

// NOLINTBEGIN(bugprone-return-const-ref-from-parameter): ATen declares resize_ so.
const at::Tensor& Resize(const at::Tensor& self, c10::IntArrayRef sizes,
                         std::optional<at::MemoryFormat> format) {
  c10::TensorImpl& impl = *self.unsafeGetTensorImpl();
  if (impl.sizes() == sizes && !format.has_value()) return self;
  const auto old_bytes = static_cast<int64_t>(impl.unsafe_storage().nbytes());
  impl.set_sizes_contiguous(sizes);
  EnsureStorage(impl,
                at::detail::computeStorageNbytesContiguous(sizes, self.itemsize(), impl.storage_offset()));
  if (format.has_value()) {
    TORCH_CHECK(*format != at::MemoryFormat::Preserve, "Unsupported memory format", *format);
    impl.empty_tensor_restride(*format);
  }
  if (at::globalContext().deterministicAlgorithms() &&
      at::globalContext().deterministicFillUninitializedMemory()) [[unlikely]]
    at::native::fill_resize_deterministic_(self, old_bytes);
  return self;
}
// NOLINTEND(bugprone-return-const-ref-from-parameter)

at::Tensor& SetStorageOffset(at::Tensor& self, at::Storage source, int64_t offset, c10::IntArrayRef sizes,
                             c10::IntArrayRef strides) {
  TORCH_CHECK(strides.empty() || strides.size() == sizes.size(), "mismatch in length of strides and shape");
  at::native::checkSetStorage(self, std::move(source), offset, sizes, strides);
  c10::TensorImpl& impl = *self.unsafeGetTensorImpl();
  impl.set_storage_offset(offset);
  if (strides.empty()) {
    impl.set_sizes_contiguous(sizes);
  } else {
    impl.set_sizes_and_strides(sizes, strides);
  }
  EnsureStorage(impl,
                at::detail::computeStorageNbytes(impl.sizes(), impl.strides(), self.itemsize(), offset));
  return self;
}

at::Tensor& SetStorage(at::Tensor& self, at::Storage source) {
  const auto count = static_cast<int64_t>(source.nbytes() / self.itemsize());
  return SetStorageOffset(self, std::move(source), 0, {count}, {});
}

at::Tensor& SetTensor(at::Tensor& self, const at::Tensor& source) {
  if (self.is_same(source)) return self;
  return SetStorageOffset(self, source.storage(), source.storage_offset(), source.sizes(), source.strides());
}

at::Tensor& SetNothing(at::Tensor& self) {
  at::Storage empty(at::Storage::use_byte_size_t(), 0, GetAllocator()->allocate(0), GetAllocator(),
                    /*resizable=*/true);
  return SetStorageOffset(self, std::move(empty), 0, {0}, {});
}

void RecordStream(at::Tensor&, c10::Stream) {}  // not needed: a free waits for the last use on every stream

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", XPUD_FN(EmptyMemoryFormat));
  m.impl("empty_strided", XPUD_FN(EmptyStrided));
  m.impl("as_strided", XPUD_FN(AsStrided));
  m.impl("view", XPUD_FN(View));
  m.impl("_reshape_alias", XPUD_FN(ReshapeAlias));
  m.impl("unfold", XPUD_FN(Unfold));
  m.impl("view_as_real", XPUD_FN(ViewAsReal));
  m.impl("view_as_complex", XPUD_FN(ViewAsComplex));
  m.impl("is_set_to", XPUD_FN(IsSetTo));
  m.impl("record_stream", XPUD_FN(RecordStream));
  m.impl("_has_compatible_shallow_copy_type", XPUD_FN(HasCompatibleShallowCopyType));
  m.impl("resize_", XPUD_FN(Resize));
  m.impl("set_.source_Storage_storage_offset", XPUD_FN(SetStorageOffset));
  m.impl("set_.source_Storage", XPUD_FN(SetStorage));
  m.impl("set_.source_Tensor", XPUD_FN(SetTensor));
  m.impl("set_", XPUD_FN(SetNothing));
}
// A composite operator: if the backend has a kernel, Autograd's key needs one as well.
TORCH_LIBRARY_IMPL(aten, AutogradPrivateUse1, m) {
  m.impl("_has_compatible_shallow_copy_type", TORCH_FN(HasCompatibleShallowCopyType));
}

}  // namespace
}  // namespace xpud::shim
