// Operators that write at positions of several dimensions, or of all elements as a line: index_put, put,
// masked_scatter.
#include <ATen/ATen.h>
#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/TensorUtils.h>
#include <torch/library.h>

#include "proto/ops/invalid_index.h"
#include "sdk/torch/csrc/call/command.h"
#include "sdk/torch/csrc/call/kernel.h"
#include "sdk/torch/csrc/engines/copy.h"
#include "sdk/torch/csrc/engines/device_check.h"
#include "sdk/torch/csrc/engines/positions.h"
#include "sdk/torch/csrc/engines/scatter.h"
#include "sdk/torch/csrc/fallback/fallback.h"

namespace xpud::shim {
namespace {

using at::Tensor;

// ---- index_put ----

// Returns the one mask among `indices`, shaped to broadcast to `self`, if there is no other index.
std::optional<Tensor> OnlyMask(const Tensor& self, const c10::List<std::optional<Tensor>>& indices) {
  std::optional<Tensor> mask;
  int64_t before = 0;
  for (size_t d = 0; d < indices.size(); ++d) {
    const std::optional<Tensor> index = indices.get(d);
    const bool given = index.has_value() && index->defined();
    if (given && (mask.has_value() || index->scalar_type() != at::kBool || !IsOnDevice(*index)))
      return std::nullopt;
    if (given) mask = index;
    if (!mask.has_value()) ++before;
  }
  if (!mask.has_value() || before + mask->dim() > self.dim() ||
      mask->sizes() != self.sizes().slice(static_cast<size_t>(before), static_cast<size_t>(mask->dim())))
    return std::nullopt;
  Tensor aligned = *mask;
  while (aligned.dim() + before < self.dim()) aligned = aligned.unsqueeze(-1);
  return aligned;
}

bool HasIndex(const c10::List<std::optional<Tensor>>& indices) {
  for (size_t d = 0; d < indices.size(); ++d) {
    const std::optional<Tensor> index = indices.get(d);
    if (index.has_value() && index->defined()) return true;
  }
  return false;
}

void CheckIndexPut(const Tensor& self, const c10::List<std::optional<Tensor>>& indices,
                   const Tensor& values) {
  at::assert_no_overlap(self, values);
  for (size_t d = 0; d < indices.size(); ++d) {
    const std::optional<Tensor> index = indices.get(d);
    if (index.has_value() && index->defined()) at::assert_no_overlap(self, *index);
  }
}

void PutValues(const Positions& positions, const Tensor& values, bool accumulate) {
  const bool fits = at::is_expandable_to(values.sizes(), positions.result);
  TORCH_CHECK(fits, "shape mismatch: value tensor of shape ", values.sizes(),
              " cannot be broadcast to indexing result of shape ", c10::IntArrayRef(positions.result));
  TORCH_CHECK(positions.view.scalar_type() == values.scalar_type(),
              "Index put requires the source and destination dtypes match, got ",
              positions.view.scalar_type(), " for the destination and ", values.scalar_type(),
              " for the source.");
  c10::SmallVector<int64_t, 8> sizes(positions.flat);
  sizes[static_cast<size_t>(positions.first)] = positions.index.numel();
  const Tensor source = values.expand(positions.result).reshape(sizes);
  if (source.numel() == 0) return;
  // Merges the indexed dimensions in place, or in a copy if the strides do not allow it.
  const bool merges = at::detail::computeStride(positions.view.sizes(), positions.view.strides(),
                                                c10::IntArrayRef(positions.flat))
                          .has_value();
  const Tensor out =
      merges ? positions.view.view(positions.flat) : positions.view.contiguous().view(positions.flat);
  const Tensor index = IndexAlong(positions.index.reshape({-1}), positions.first, sizes);
  Scatter(accumulate ? Combination::kAdd : Combination::kPut, out, positions.first, index, source,
          accumulate ? Order::kOfIndex : Order::kAny);
  if (!merges) positions.view.copy_(out.view(positions.view.sizes()));
}

Tensor& IndexPut_(Tensor& self, const c10::List<std::optional<Tensor>>& indices, const Tensor& values,
                  bool accumulate, bool unsafe) {
  TORCH_CHECK_INDEX(static_cast<int64_t>(indices.size()) <= self.dim(),
                    "too many indices for tensor of dimension ", self.dim(), " (got ", indices.size(), ")");
  if (!accumulate && values.numel() == 1 && values.dim() == 0 && IsOnDevice(self)) {
    if (const std::optional<Tensor> mask = OnlyMask(self, indices)) return self.masked_fill_(*mask, values);
  }
  const bool number = values.device().is_cpu() && values.dim() == 0;
  if (!number) CheckSameDevice(self.device(), values.device());
  if (CanIndexPairs(self, indices) && !self.is_conj() && self.scalar_type() == values.scalar_type()) {
    Tensor pairs = at::view_as_real(self);
    IndexPut_(pairs, indices, at::view_as_real(values.to(self.device()).resolve_conj()), accumulate, unsafe);
    return self;
  }
  const bool served =
      IsServed(self, ops::kAllTypes) && HasIndex(indices) && (number || IsServed(values, ops::kAllTypes));
  if (!served) return FallbackOf<at::_ops::_index_put_impl_>::Call(self, indices, values, accumulate, unsafe);
  WarnOfExpanded(self, "index_put_", "tensor[indices] = tensor");
  const Tensor here = number ? values.to(self.device()) : values;
  CheckIndexPut(self, indices, here);
  PutValues(FindPositions(self, indices), here, accumulate);
  return self;
}

// ---- the elements as one line ----

void CheckPut(const Tensor& self, const Tensor& index, const Tensor& source) {
  TORCH_CHECK(index.scalar_type() == at::kLong, "put_(): Expected a long tensor for index, but got ",
              index.scalar_type());
  TORCH_CHECK(self.scalar_type() == source.scalar_type(),
              "put_(): self and source expected to have the same dtype, but got self.dtype = ",
              self.scalar_type(), " and source.dtype = ", source.scalar_type());
  TORCH_CHECK_INDEX(source.numel() == index.numel(),
                    "put_(): Expected source and index to have the same number of elements, but got "
                    "source.numel() = ",
                    source.numel(), ", index.numel() = ", index.numel());
  TORCH_CHECK_INDEX(self.numel() != 0 || index.numel() == 0,
                    "put_(): Tried to put elements into an empty tensor");
  CheckOverlaps(self, {&index, &source});
}

Tensor& Put_(Tensor& self, const Tensor& index, const Tensor& source, bool accumulate) {
  if (!IsServed(self, ops::kAllTypes) || !IsOnDevice(index) || !IsOnDevice(source))
    return FallbackOf<at::_ops::put_>::Call(self, index, source, accumulate);
  CheckPut(self, index, source);
  if (index.numel() == 0) return self;
  const Tensor whole = Contiguous(self), line = whole.view({-1});
  Scatter(accumulate ? Combination::kAdd : Combination::kPut, line, 0,
          WrapIndex(index, self.numel(), ops::kNoDimension).view({-1}), source.reshape({-1}), Order::kAny);
  if (!whole.is_same(self)) self.copy_(whole);
  return self;
}

// Element n of the source goes to the n-th true element of the mask.
Tensor& MaskedScatter_(Tensor& self, const Tensor& mask, const Tensor& source) {
  if (!IsServed(self, ops::kAllTypes) || !IsOnDevice(mask) || !IsOnDevice(source) || source.numel() == 0)
    return FallbackOf<at::_ops::masked_scatter_>::Call(self, mask, source);
  at::assert_no_internal_overlap(self);
  TORCH_CHECK(self.scalar_type() == source.scalar_type(),
              "masked_scatter: expected self and source to have same dtypes but got ", self.scalar_type(),
              " and ", source.scalar_type());
  TORCH_CHECK(mask.scalar_type() == at::kBool,
              "masked_scatter_ only supports boolean masks, but got mask with dtype ", mask.scalar_type());
  CheckSameDevice(self.device(), mask.device());
  CheckSameDevice(self.device(), source.device());
  if (self.numel() == 0) return self;
  const Tensor chosen = mask.expand(self.sizes());
  const Tensor number = chosen.reshape({-1}).cumsum(0).sub_(1).clamp_min_(0);
  CheckOnDevice(number.slice(0, -1).ge(source.numel()),
                "Number of elements of source < number of ones in mask");
  const Tensor values = source.reshape({-1}).index_select(0, number).view(self.sizes());
  return self.copy_(at::where(chosen, values, self));
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_index_put_impl_", XPUD_FN(IndexPut_));
  m.impl("put_", XPUD_FN(Put_));
  m.impl("masked_scatter_", XPUD_FN(MaskedScatter_));
}

}  // namespace
}  // namespace xpud::shim
