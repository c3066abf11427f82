#include "sdk/torch/csrc/engines/copy.h"

#include <ATen/ATen.h>
#include <ATen/MemoryOverlap.h>

#include <cstring>

#include "sdk/torch/csrc/engines/float8.h"
#include "sdk/torch/csrc/engines/map.h"
#include "sdk/torch/csrc/runtime/errors.h"
#include "sdk/torch/csrc/runtime/storage.h"

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

bool HasSameBytes(const at::Tensor& a, const at::Tensor& b) {
  return a.scalar_type() == b.scalar_type() && a.sizes() == b.sizes() && a.strides() == b.strides() &&
         (a.is_contiguous() || a.is_non_overlapping_and_dense());
}

void CopyBytes(const at::Tensor& source, const at::Tensor& target) {
  Runtime& runtime = Runtime::Get();
  if (runtime.is_null()) return;
  const Place from = PlaceOf(source), to = PlaceOf(target);
  ThrowIfError(runtime.current_queue(DeviceIndexOf(target))
                   .Copy(from.buffer, from.offset, to.buffer, to.offset, target.nbytes()));
}

// As CopyBytes, between two devices.
void CopyBytesBetween(const at::Tensor& source, const at::Tensor& target) {
  Runtime& runtime = Runtime::Get();
  if (runtime.is_null()) return;
  const WaitScope scope;
  const Place from = PlaceOf(source), to = PlaceOf(target);
  ThrowIfError(runtime.current_queue(DeviceIndexOf(target))
                   .CopyFrom(runtime.current_queue(DeviceIndexOf(source)), from.buffer, from.offset,
                             to.buffer, to.offset, target.nbytes()));
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

bool IsPlain(const at::Tensor& tensor) { return !tensor.is_conj() && !tensor.is_neg(); }

// Narrows repeated dimensions to one element, because an output must not overlap itself.
at::Tensor WithoutRepeats(const at::Tensor& tensor) {
  at::Tensor single = tensor;
  for (int64_t d = 0; d < tensor.dim(); ++d) {
    if (tensor.stride(d) == 0 && tensor.size(d) > 1) single = single.narrow(d, 0, 1);
  }
  return single;
}

// Copies the bytes, then applies the conjugation or negation that is pending on one side only.
void CopyPending(const at::Tensor& source, const at::Tensor& target) {
  const at::Tensor plain = Plain(target);
  CopyOnDevice(Plain(source), plain);
  if (source.is_conj() != target.is_conj()) at::view_as_real(plain).select(-1, 1).neg_();
  if (source.is_neg() != target.is_neg()) (plain.is_complex() ? at::view_as_real(plain) : plain).neg_();
}

}  // namespace

at::Tensor Reinterpret(const at::Tensor& tensor) {
  if (tensor.is_complex()) return at::view_as_real(tensor);
  static constexpr std::array<at::ScalarType, 4> kBySize = {at::kByte, at::kShort, at::kInt, at::kLong};
  return tensor.view(kBySize.at(std::bit_width(tensor.itemsize()) - 1));
}

bool IsExactAlias(const at::Tensor& a, const at::Tensor& b) {
  return a.is_alias_of(b) && a.storage_offset() == b.storage_offset() && a.sizes() == b.sizes() &&
         a.strides() == b.strides() && a.scalar_type() == b.scalar_type() && a.is_conj() == b.is_conj() &&
         a.is_neg() == b.is_neg();
}

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

at::Tensor Plain(const at::Tensor& tensor) {
  at::Tensor plain = tensor.is_conj() ? tensor.conj() : tensor;
  return plain.is_neg() ? plain._neg_view() : plain;
}
at::Tensor LikePending(const at::Tensor& plain, const at::Tensor& tensor) {
  at::Tensor pending = tensor.is_conj() ? plain.conj() : plain;
  return tensor.is_neg() ? pending._neg_view() : pending;
}

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

void CopyBetweenDevices(const at::Tensor& source, const at::Tensor& target) {
  if (target.numel() == 0) return;
  if (IsPlain(source) && IsPlain(target) && HasSameBytes(source, target))
    return CopyBytesBetween(source, target);
  const at::Tensor plain = Plain(source);
  const bool converts = IsSupported(source.scalar_type()) && IsSupported(target.scalar_type());
  const bool shrinks = converts && target.itemsize() < source.itemsize();
  const at::Tensor dense = ContiguousAs(plain, shrinks ? target.scalar_type() : plain.scalar_type());
  if (IsPlain(source) && IsPlain(target) && HasSameBytes(dense, target))
    return CopyBytesBetween(dense, target);
  const at::Tensor there = MakeEmpty(dense.sizes(), dense.scalar_type(), target.device());
  CopyBytesBetween(dense, there);
  CopyOnDevice(LikePending(there, source), target);
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
