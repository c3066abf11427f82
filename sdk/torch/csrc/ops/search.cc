// Searches in sorted sequences: searchsorted, bucketize, isin.
#include <ATen/ATen.h>
#include <ATen/native/BucketizationUtils.h>
#include <torch/library.h>

#include <string_view>

#include "proto/ops/families/order.h"
#include "sdk/torch/csrc/call/command.h"
#include "sdk/torch/csrc/call/kernel.h"
#include "sdk/torch/csrc/engines/copy.h"
#include "sdk/torch/csrc/fallback/fallback.h"
#include "sdk/torch/csrc/runtime/storage.h"

namespace xpud::shim {
namespace {

using at::Scalar;
using at::Tensor;
using Side = std::optional<std::string_view>;

// The type in which two operands are compared: a 0-dim one does not change that of the other.
at::ScalarType CommonType(const Tensor& a, const Tensor& b) {
  return a.scalar_type() == b.scalar_type() ? a.scalar_type() : at::result_type(a, b);
}

bool CanSearch(const Tensor& sequence, const Tensor& self, const OptionalTensor& sorter) {
  return IsOnDevice(sequence) && IsOnDevice(self) && sequence.dim() <= ops::kMaxRank &&
         self.dim() <= ops::kMaxRank && (!IsGiven(sorter) || IsOnDevice(*sorter)) &&
         IsSupported(sequence.scalar_type(), ops::kNumericTypes) &&
         IsSupported(self.scalar_type(), ops::kNumericTypes) &&
         IsSupported(CommonType(sequence, self), ops::kNumericTypes);
}

// Returns how many elements of the sequence's line precede each element of `self`.
Tensor Search(const Tensor& sequence, const Tensor& self, bool narrow, bool right, const Tensor& sorter) {
  static const ops::Row& row = ops::RowOf("searchsorted.Tensor");
  Tensor out = MakeEmpty(self.sizes(), narrow ? at::kInt : at::kLong, self.device());
  if (out.numel() == 0 || sequence.size(-1) == 0) return out.zero_();
  const at::ScalarType type = CommonType(sequence, self);
  const auto as = [&](const Tensor& tensor) {
    return tensor.scalar_type() == type ? tensor : ContiguousAs(tensor, type);
  };
  const Tensor line = as(sequence), wanted = as(self);
  Send(row,
       ops::SearchCall<TensorRef>{.out = Describe(out),
                                  .sorted_sequence = Describe(line),
                                  .self = Describe(wanted),
                                  .sorter = DescribeIf(sorter),
                                  .right = right,
                                  .out_int32 = narrow},
       line);
  return out;
}

Tensor SearchSorted(const Tensor& sequence, const Tensor& self, bool narrow, bool right, const Side side,
                    const OptionalTensor& sorter) {
  if (!CanSearch(sequence, self, sorter)) {
    return FallbackOf<at::_ops::searchsorted_Tensor>::Call(sequence, self, narrow, right, side, sorter);
  }
  const Tensor order = IsGiven(sorter) ? *sorter : Tensor();
  const Tensor like = at::empty({0}, self.options().dtype(narrow ? at::kInt : at::kLong));
  at::native::searchsorted_pre_check(sequence, self, like, narrow, right, side, order);
  return Search(sequence, self, narrow, side.has_value() ? *side == "right" : right, order);
}

Tensor SearchSortedScalar(const Tensor& sequence, const Scalar& self, bool narrow, bool right,
                          const Side side, const OptionalTensor& sorter) {
  const Tensor wanted = at::native::searchsorted_scalar_tensor(self, sequence.device());
  return at::searchsorted(sequence, wanted, narrow, right, side, sorter);
}

Tensor Bucketize(const Tensor& self, const Tensor& boundaries, bool narrow, bool right) {
  TORCH_CHECK(boundaries.dim() == 1, "boundaries tensor must be 1 dimension, but got dim(", boundaries.dim(),
              ")");
  return at::searchsorted(boundaries, self, narrow, right);
}

Tensor BucketizeScalar(const Scalar& self, const Tensor& boundaries, bool narrow, bool right) {
  return at::bucketize(at::native::searchsorted_scalar_tensor(self, boundaries.device()), boundaries, narrow,
                       right);
}

// ---- isin

// Returns whether each element is one of `all`, which is not empty.
Tensor IsOneOf(const Tensor& elements, const Tensor& all, at::ScalarType type) {
  const at::ScalarType as = type == at::kBool ? at::kByte : type;
  const Tensor wanted = elements.to(as), sorted = std::get<0>(all.to(as).reshape({-1}).sort());
  const Tensor at = at::searchsorted(sorted, wanted).clamp_max(sorted.numel() - 1);
  return sorted.index_select(0, at.reshape({-1})).view(at.sizes()).eq(wanted);
}

Tensor IsIn(const Tensor& elements, const Tensor& all, bool unique, bool invert) {
  const at::ScalarType type = at::result_type(elements, all);
  if (!IsOnDevice(elements) || !IsOnDevice(all) || elements.dim() > ops::kMaxRank || !IsSupported(type))
    return FallbackOf<at::_ops::isin_Tensor_Tensor>::Call(elements, all, unique, invert);
  if (elements.numel() == 0) return at::empty(elements.sizes(), elements.options().dtype(at::kBool));
  if (all.numel() == 0) return at::full(elements.sizes(), invert, elements.options().dtype(at::kBool));
  const Tensor found = IsOneOf(elements, all, type);
  return invert ? found.logical_not() : found;
}

Tensor IsInScalar(const Tensor& elements, const Scalar& element, bool /*unique*/, bool invert) {
  return invert ? elements.ne(element) : elements.eq(element);
}

Tensor IsScalarIn(const Scalar& element, const Tensor& all, bool /*unique*/, bool invert) {
  const Tensor same = all.eq(element).any();
  return invert ? same.logical_not() : same;
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("searchsorted.Tensor", XPUD_FN(SearchSorted));
  m.impl("searchsorted.Scalar", XPUD_FN(SearchSortedScalar));
  m.impl("bucketize.Tensor", XPUD_FN(Bucketize));
  m.impl("bucketize.Scalar", XPUD_FN(BucketizeScalar));
  m.impl("isin.Tensor_Tensor", XPUD_FN(IsIn));
  m.impl("isin.Tensor_Scalar", XPUD_FN(IsInScalar));
  m.impl("isin.Scalar_Tensor", XPUD_FN(IsScalarIn));
}

}  // namespace
}  // namespace xpud::shim
