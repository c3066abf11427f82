// Order along a dimension: sort, topk, kthvalue, medians and mode. All of them sort
// (kernels/families/sort.h); of equal elements, the first one is chosen.
#include <ATen/ATen.h>
#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/native/ReduceOpsUtils.h>
#include <torch/library.h>

#include <limits>

#include "proto/ops/families/order.h"
#include "sdk/torch/csrc/call/command.h"
#include "sdk/torch/csrc/call/kernel.h"
#include "sdk/torch/csrc/engines/copy.h"
#include "sdk/torch/csrc/fallback/fallback.h"
#include "sdk/torch/csrc/runtime/storage.h"

namespace xpud::shim {
namespace {

using at::Tensor;
using ValuesAndIndices = std::tuple<Tensor, Tensor>;

const ops::Row& SortRow() {
  static const ops::Row& row = ops::RowOf("sort");
  return row;
}

bool CanSort(const Tensor& self, ops::DTypeSet types = ops::kAllTypes) { return IsServed(self, types); }

int64_t LengthOf(const Tensor& self, int64_t dim) { return self.dim() == 0 ? 1 : self.size(dim); }

// Writes the first elements of each line, as many as the outputs have.
void SortInto(const Tensor& self, int64_t dim, bool descending, const ValuesAndIndices& out) {
  const auto& [values, indices] = out;
  if (values.numel() == 0) return;
  const int64_t k = self.dim() == 0 ? -1 : values.size(dim);
  Send(SortRow(),
       ops::SortCall<TensorRef>{.values = Describe(values),
                                .indices = Describe(indices),
                                .self = Describe(self),
                                .dim = dim,
                                .descending = descending,
                                .k = k},
       self);
}

// Returns the first k elements of each line.
ValuesAndIndices FirstOf(const Tensor& self, int64_t k, int64_t dim, bool descending) {
  c10::SmallVector<int64_t, ops::kMaxRank> sizes(self.sizes());
  if (!sizes.empty()) sizes[static_cast<size_t>(dim)] = k;
  ValuesAndIndices out = {MakeEmpty(sizes, self.scalar_type(), self.device()),
                          MakeEmpty(sizes, at::kLong, self.device())};
  SortInto(self, dim, descending, out);
  return out;
}

ValuesAndIndices SortStable(const Tensor& self, std::optional<bool> stable, int64_t dim, bool descending) {
  if (!CanSort(self)) return FallbackOf<at::_ops::sort_stable>::Call(self, stable, dim, descending);
  TORCH_CHECK(stable.has_value(), "sort(): c10::optional<bool> for stable has to have value.");
  dim = at::maybe_wrap_dim(dim, self.dim(), /*wrap_scalar=*/true);
  const std::vector<int64_t> strides = self.is_non_overlapping_and_dense()
                                           ? self.strides().vec()
                                           : at::infer_dense_strides(self.sizes(), self.strides());
  const ValuesAndIndices out = {at::empty_strided(self.sizes(), strides, self.options()),
                                at::empty_strided(self.sizes(), strides, self.options().dtype(at::kLong))};
  SortInto(self, dim, descending, out);
  return out;
}

ValuesAndIndices TopK(const Tensor& self, int64_t k, int64_t dim, bool largest, bool sorted) {
  if (!CanSort(self, ops::kNumericTypes))
    return FallbackOf<at::_ops::topk>::Call(self, k, dim, largest, sorted);
  dim = at::maybe_wrap_dim(dim, self.dim(), /*wrap_scalar=*/true);
  TORCH_CHECK(k >= 0 && k <= LengthOf(self, dim), "selected index k out of range");
  return FirstOf(self, k, dim, largest);
}

// ---- one element of each line

// Removes the dimension of size 1 that a choice leaves.
ValuesAndIndices Reduced(const Tensor& values, const Tensor& indices, int64_t dim, bool keep) {
  if (keep || values.dim() == 0) return {values, indices};
  return {values.squeeze(dim), indices.squeeze(dim)};
}
ValuesAndIndices Reduced(const ValuesAndIndices& of, int64_t dim, bool keep) {
  return Reduced(std::get<0>(of), std::get<1>(of), dim, keep);
}

// Returns a row-major tensor; its dimensions of size 1 have the strides of a new one, too.
Tensor AsNew(const Tensor& tensor) { return tensor.contiguous().view({-1}).view(tensor.sizes()); }

// Returns element k (from 0) of each line in ascending order, along a dimension of size 1.
ValuesAndIndices ElementOf(const Tensor& self, int64_t k, int64_t dim) {
  const auto [values, indices] = FirstOf(self, k + 1, dim, /*descending=*/false);
  if (self.dim() == 0 || k == 0) return {values, indices};
  return {AsNew(values.narrow(dim, k, 1)), AsNew(indices.narrow(dim, k, 1))};
}

ValuesAndIndices KthValue(const Tensor& self, int64_t k, int64_t dim, bool keep) {
  if (!CanSort(self, ops::kNumericTypes)) return FallbackOf<at::_ops::kthvalue>::Call(self, k, dim, keep);
  dim = at::maybe_wrap_dim(dim, self.dim(), /*wrap_scalar=*/true);
  at::native::zero_numel_check_dims(self, dim, "kthvalue()");
  TORCH_CHECK(k > 0 && k <= LengthOf(self, dim), "kthvalue(): selected number k out of range for dimension ",
              dim);
  return Reduced(ElementOf(self, k - 1, dim), dim, keep);
}

// The lower one of two medians. A line with a NaN has the first NaN.
ValuesAndIndices MedianOf(const Tensor& self, int64_t dim) {
  ValuesAndIndices median = ElementOf(self, (LengthOf(self, dim) - 1) / 2, dim);
  if (!at::isFloatingType(self.scalar_type())) return median;
  const auto [largest, at] = self.max(dim, /*keepdim=*/true);  // NaN is the largest
  const Tensor nan = largest.isnan();
  return {at::where(nan, largest, std::get<0>(median)), at::where(nan, at, std::get<1>(median))};
}

// The lower median of the numbers of each line, or NaN if there are none.
ValuesAndIndices NanMedianOf(const Tensor& self, int64_t dim) {
  if (!at::isFloatingType(self.scalar_type())) return MedianOf(self, dim);
  if (self.dim() == 0) return FirstOf(self, 1, dim, /*descending=*/false);
  const auto [values, indices] = FirstOf(self, LengthOf(self, dim), dim, /*descending=*/false);
  const Tensor numbers = self.isnan().logical_not().sum(dim, /*keepdim=*/true);
  const Tensor middle = at::floor_divide(numbers.sub(1), 2).clamp_min(0);
  return {values.gather(dim, middle), indices.gather(dim, middle)};
}

template <class Op, ValuesAndIndices (*median)(const Tensor&, int64_t)>
ValuesAndIndices MedianDim(const Tensor& self, int64_t dim, bool keep) {
  if (!CanSort(self, ops::kNumericTypes)) return FallbackOf<Op>::Call(self, dim, keep);
  dim = at::maybe_wrap_dim(dim, self.dim(), /*wrap_scalar=*/true);
  at::native::zero_numel_check_dims(self, dim, "median()");
  if (self.numel() == 0) {
    c10::SmallVector<int64_t, ops::kMaxRank> sizes(self.sizes());
    sizes[static_cast<size_t>(dim)] = 1;
    return Reduced(MakeEmpty(sizes, self.scalar_type(), self.device()),
                   MakeEmpty(sizes, at::kLong, self.device()), dim, keep);
  }
  return Reduced(median(self, dim), dim, keep);
}

template <class Op, ValuesAndIndices (*median)(const Tensor&, int64_t)>
Tensor Median(const Tensor& self) {
  if (!CanSort(self, ops::kNumericTypes) || self.numel() == 0) return FallbackOf<Op>::Call(self);
  return std::get<0>(Reduced(median(Contiguous(self).view({-1}), 0), 0, /*keep=*/false));
}

// Returns where a sorted line's element differs from the one before it; the first one always does.
Tensor StartsOf(const Tensor& sorted) {
  const int64_t n = sorted.size(-1);
  Tensor starts = at::ones(sorted.sizes(), sorted.options().dtype(at::kBool));
  if (n > 1) starts.narrow(-1, 1, n - 1).copy_(sorted.narrow(-1, 1, n - 1).ne(sorted.narrow(-1, 0, n - 1)));
  return starts;
}

// The most frequent element of each line; of several, the smallest. Its index is that of its last occurrence.
ValuesAndIndices Mode(const Tensor& self, int64_t dim, bool keep) {
  if (!CanSort(self) || self.numel() == 0) return FallbackOf<at::_ops::mode>::Call(self, dim, keep);
  dim = at::maybe_wrap_dim(dim, self.dim(), /*wrap_scalar=*/true);
  if (self.dim() == 0) return FirstOf(self, 1, dim, /*descending=*/false);
  const auto [values, indices] = FirstOf(self.movedim(dim, -1), self.size(dim), self.dim() - 1, false);
  const Tensor at = at::arange(self.size(dim), indices.options());
  const Tensor start = std::get<0>(at::where(StartsOf(values), at, 0).cummax(-1));
  const Tensor best = at.sub(start).argmax(-1, /*keepdim=*/true);
  const Tensor value = values.gather(-1, best).movedim(-1, dim),
               index = indices.gather(-1, best).movedim(-1, dim);
  return Reduced(AsNew(value), AsNew(index), dim, keep);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("sort.stable", XPUD_FN(SortStable));
  m.impl("topk", XPUD_FN(TopK));
  m.impl("kthvalue", XPUD_FN(KthValue));
  m.impl("median.dim", XPUD_FN(MedianDim<at::_ops::median_dim, MedianOf>));
  m.impl("nanmedian.dim", XPUD_FN(MedianDim<at::_ops::nanmedian_dim, NanMedianOf>));
  m.impl("median", XPUD_FN(Median<at::_ops::median, MedianOf>));
  m.impl("nanmedian", XPUD_FN(Median<at::_ops::nanmedian, NanMedianOf>));
  m.impl("mode", XPUD_FN(Mode));
}

}  // namespace
}  // namespace xpud::shim
