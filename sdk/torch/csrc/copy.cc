#include "sdk/torch/csrc/copy.h"

#include <ATen/ATen.h>
#include <ATen/Dispatch_v2.h>
#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>
#include <torch/library.h>

#include <cstring>

#include "sdk/torch/csrc/errors.h"
#include "sdk/torch/csrc/factories.h"
#include "sdk/torch/csrc/fallback.h"
#include "sdk/torch/csrc/float8.h"
#include "sdk/torch/csrc/kernel.h"
#include "sdk/torch/csrc/map.h"

namespace xpud::shim {
namespace {

const ops::Row& CopyRow() {
  static const ops::Row& row = ops::RowOf("_copy_from");
  return row;
}
const ops::Row& FillRow() {
  static const ops::Row& row = ops::RowOf("fill.Scalar");
  return row;
}

// Views the same bytes as a dtype of the wire. Complex tensors gain a dimension.
at::Tensor Reinterpret(const at::Tensor& tensor) {
  if (tensor.is_complex()) return at::view_as_real(tensor);
  static constexpr std::array<at::ScalarType, 4> kBySize = {at::kByte, at::kShort, at::kInt, at::kLong};
  return tensor.view(kBySize.at(std::bit_width(tensor.itemsize()) - 1));
}

bool HasSameBytes(const at::Tensor& a, const at::Tensor& b) {
  return a.scalar_type() == b.scalar_type() && a.sizes() == b.sizes() && a.strides() == b.strides() &&
         (a.is_contiguous() || a.is_non_overlapping_and_dense());
}

bool IsExactAlias(const at::Tensor& a, const at::Tensor& b) {
  return a.is_alias_of(b) && a.storage_offset() == b.storage_offset() && a.sizes() == b.sizes() &&
         a.strides() == b.strides() && a.scalar_type() == b.scalar_type() && a.is_conj() == b.is_conj() &&
         a.is_neg() == b.is_neg();
}

void CopyBytes(const at::Tensor& source, const at::Tensor& target) {
  Runtime& runtime = Runtime::Get();
  if (runtime.is_null()) return;
  const Place from = PlaceOf(source), to = PlaceOf(target);
  ThrowIfError(runtime.current_queue(DeviceIndexOf(target))
                   .Copy(from.buffer, from.offset, to.buffer, to.offset, target.nbytes()));
}

// If `non_blocking` is true and `target` is pinned memory, `target` may be written after this returns.
void Download(const at::Tensor& source, void* target, size_t bytes, bool non_blocking) {
  Runtime& runtime = Runtime::Get();
  if (runtime.is_null()) {
    std::memset(target, 0, bytes);
    return;
  }
  const WaitScope scope;
  const Place from = PlaceOf(source);
  const Queue& queue = runtime.current_queue(DeviceIndexOf(source));
  const std::span<std::byte> to(static_cast<std::byte*>(target), bytes);
  ThrowIfError(non_blocking ? queue.StartDownload(from.buffer, from.offset, to)
                            : queue.Download(from.buffer, from.offset, to));
}

// If `non_blocking` is true and `source` is pinned memory, `source` may be read after this returns.
void Upload(const at::Tensor& source, const at::Tensor& target, bool non_blocking) {
  Runtime& runtime = Runtime::Get();
  if (runtime.is_null()) return;
  const WaitScope scope;
  const Place to = PlaceOf(target);
  const std::span<const std::byte> bytes(static_cast<const std::byte*>(source.const_data_ptr()),
                                         source.nbytes());
  const Queue& queue = runtime.current_queue(DeviceIndexOf(target));
  ThrowIfError(non_blocking ? queue.StartUpload(bytes, to.buffer, to.offset)
                            : queue.Upload(bytes, to.buffer, to.offset));
}

// Copies slice by slice, along the shortest dimension, if the rank is too high for one command.
void CopyStrided(const at::Tensor& source, const at::Tensor& target) {
  at::Tensor out = target;
  const MapInput input(source);
  Broadcast broadcast(target.sizes());
  broadcast.Add(target);
  broadcast.Add(source);
  if (broadcast.Finish()) return LaunchMap(CopyRow(), *ToDType(source.scalar_type()), {&out, 1}, {&input, 1});
  int64_t shortest = 0;
  for (int64_t d = 1; d < target.dim(); ++d) {
    if (target.size(shortest) == 1 || (target.size(d) > 1 && target.size(d) < target.size(shortest)))
      shortest = d;
  }
  const at::Tensor expanded = source.expand(target.sizes());
  for (int64_t i = 0; i < target.size(shortest); ++i)
    CopyStrided(expanded.select(shortest, i), target.select(shortest, i));
}

// Returns the bytes as they are in memory, without pending conjugation and negation.
at::Tensor Plain(const at::Tensor& tensor) {
  at::Tensor plain = tensor.is_conj() ? tensor.conj() : tensor;
  return plain.is_neg() ? plain._neg_view() : plain;
}
at::Tensor LikePending(const at::Tensor& plain, const at::Tensor& tensor) {
  at::Tensor pending = tensor.is_conj() ? plain.conj() : plain;
  return tensor.is_neg() ? pending._neg_view() : pending;
}
bool IsPlain(const at::Tensor& tensor) { return !tensor.is_conj() && !tensor.is_neg(); }

void CopyToHost(const at::Tensor& source, const at::Tensor& target, bool non_blocking) {
  if (!IsPlain(source)) {
    const at::Tensor plain = Plain(source);
    const at::Tensor host = at::empty(plain.sizes(), plain.options().device(at::kCPU));
    CopyToHost(plain, host, /*non_blocking=*/false);
    target.copy_(LikePending(host, source));
    return;
  }
  if (IsPlain(target) && HasSameBytes(source, target))
    return Download(source, target.mutable_data_ptr(), target.nbytes(), non_blocking);
  const bool converts = IsSupported(source.scalar_type()) && IsSupported(target.scalar_type());
  const at::Tensor dense = ContiguousAs(source, converts ? target.scalar_type() : source.scalar_type());
  if (IsPlain(target) && HasSameBytes(dense, target))
    return Download(dense, target.mutable_data_ptr(), target.nbytes(), non_blocking);
  const at::Tensor host = at::empty(dense.sizes(), dense.options().device(at::kCPU));
  Download(dense, host.mutable_data_ptr(), host.nbytes(), /*non_blocking=*/false);
  target.copy_(host);
}

void CopyFromHost(const at::Tensor& source, const at::Tensor& target, bool non_blocking) {
  if (!IsPlain(target))
    return CopyFromHost(LikePending(source, target).resolve_conj().resolve_neg(), Plain(target), false);
  if (!IsPlain(source)) return CopyFromHost(source.resolve_conj().resolve_neg(), target, false);
  if (HasSameBytes(source, target)) return Upload(source, target, non_blocking);
  const bool converts = IsSupported(source.scalar_type()) && IsSupported(target.scalar_type());
  if (source.scalar_type() != target.scalar_type() && !converts)
    return CopyFromHost(source.to(target.scalar_type()), target, false);
  if (source.numel() == 1 && converts) return Fill(target, source.item());
  const at::Tensor dense = source.contiguous();
  const at::Tensor staged = MakeEmpty(dense.sizes(), dense.scalar_type(), target.device());
  Upload(dense, staged, non_blocking);
  CopyOnDevice(staged, target);
}

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
    CopyFromHost(source.cpu(), target, false);
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

// Narrows repeated dimensions to one element, because an output must not overlap itself.
at::Tensor WithoutRepeats(const at::Tensor& tensor) {
  at::Tensor single = tensor;
  for (int64_t d = 0; d < tensor.dim(); ++d) {
    if (tensor.stride(d) == 0 && tensor.size(d) > 1) single = single.narrow(d, 0, 1);
  }
  return single;
}

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
  m.impl("fill_.Scalar", XPUD_FN(FillScalar));
  m.impl("fill_.Tensor", XPUD_FN(FillTensor));
  m.impl("zero_", XPUD_FN(Zero));
}
// The default kernels resolve the bit and call copy_ again, which would never end.
TORCH_LIBRARY_IMPL(aten, Conjugate, m) { m.impl("_copy_from", torch::CppFunction::makeFallthrough()); }
TORCH_LIBRARY_IMPL(aten, Negative, m) { m.impl("_copy_from", torch::CppFunction::makeFallthrough()); }

// Copies the bytes, then applies the conjugation or negation that is pending on one side only.
void CopyPending(const at::Tensor& source, const at::Tensor& target) {
  const at::Tensor plain = Plain(target);
  CopyOnDevice(Plain(source), plain);
  if (source.is_conj() != target.is_conj()) at::view_as_real(plain).select(-1, 1).neg_();
  if (source.is_neg() != target.is_neg()) (plain.is_complex() ? at::view_as_real(plain) : plain).neg_();
}

}  // namespace

void CopyOnDevice(const at::Tensor& source, const at::Tensor& target) {
  if (target.numel() == 0 || IsExactAlias(source, target)) return;
  const bool supported = IsSupported(source.scalar_type()) && IsSupported(target.scalar_type());
  const bool converts = source.scalar_type() != target.scalar_type();
  if (converts && IsFloat8(source.scalar_type())) return CopyOnDevice(FromFloat8(source), target);
  if (converts && IsFloat8(target.scalar_type()) && IsSupported(source.scalar_type()))
    return CopyOnDevice(ToFloat8(source, target.scalar_type()), target);
  if (!supported && converts) return CopyFromHost(source.cpu(), target, false);
  if (!IsPlain(source) || !IsPlain(target)) return CopyPending(source, target);
  if (at::get_overlap_status(source, target) != at::MemOverlapStatus::No && source.is_alias_of(target)) {
    const at::Tensor apart = MakeEmpty(source.sizes(), source.scalar_type(), source.device());
    CopyOnDevice(source, apart);
    return CopyOnDevice(apart, target);
  }
  if (HasSameBytes(source, target)) {
    CopyBytes(source, target);
  } else if (supported) {
    CopyStrided(source, target);
  } else {
    CopyStrided(Reinterpret(source.expand(target.sizes())), Reinterpret(target));
  }
}

at::Tensor ContiguousAs(const at::Tensor& source, at::ScalarType type) {
  if (source.is_contiguous() && source.scalar_type() == type) return source;
  at::Tensor made = MakeEmpty(source.sizes(), type, source.device());
  CopyOnDevice(source, made);
  return made;
}

void Fill(const at::Tensor& target, const at::Scalar& value) {
  const at::Tensor out = WithoutRepeats(target);
  const MapInput input(value, false);
  LaunchMap(FillRow(), *ToDType(target.scalar_type()), {&out, 1}, {&input, 1});
}

}  // namespace xpud::shim
