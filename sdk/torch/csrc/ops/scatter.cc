// Operators that write or combine along a dimension: scatter, index_add, index_copy, index_fill,
// index_reduce. Those with an index of one dimension repeat it with stride 0.
#include <ATen/ATen.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/TensorUtils.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/native/ScatterGatherChecks.h>
#include <torch/library.h>

#include <limits>

#include "sdk/torch/csrc/call/command.h"
#include "sdk/torch/csrc/call/kernel.h"
#include "sdk/torch/csrc/engines/map.h"
#include "sdk/torch/csrc/engines/positions.h"
#include "sdk/torch/csrc/engines/scatter.h"
#include "sdk/torch/csrc/fallback/fallback.h"

namespace xpud::shim {
namespace {

using at::Tensor;

Tensor AtLeastLine(const Tensor& tensor) { return tensor.dim() == 0 ? tensor.view(1) : tensor; }

bool IsIndex(const Tensor& index) { return IsOnDevice(index) && index.dim() <= ops::kMaxRank; }

// The functional form of an in-place operator: ATen's results are row-major.
template <auto kInPlace>
struct Copied;
template <class... Args, Tensor& (*kInPlace)(Tensor&, Args...)>
struct Copied<kInPlace> {
  static Tensor Call(const Tensor& self, Args... args) {
    Tensor out = self.clone(at::MemoryFormat::Contiguous);
    return kInPlace(out, args...);
  }
};

// ---- scatter ----

// Returns the part of `source` that the index covers.
Tensor Covered(const Tensor& source, const Tensor& index) {
  return source.sizes() == index.sizes() ? source : source.as_strided(index.sizes(), source.strides());
}

void ScatterTensor(Combination how, const char* name, const Tensor& self, int64_t dim, const Tensor& index,
                   const Tensor& source) {
  dim = at::maybe_wrap_dim(dim, self.dim());
  at::native::scatter_gather_dtype_check(name, self, index, source);
  at::native::scatter_shape_check(self, dim, index, source);
  CheckOverlaps(self, {&index, &source});
  if (index.numel() == 0) return;
  const Tensor line = AtLeastLine(index);
  Scatter(how, AtLeastLine(self), dim, line, Covered(AtLeastLine(source), line), Order::kAny);
}

void ScatterNumber(Combination how, const char* name, const Tensor& self, int64_t dim, const Tensor& index,
                   const at::Scalar& value) {
  dim = at::maybe_wrap_dim(dim, self.dim());
  at::native::scatter_gather_dtype_check(name, self, index);
  at::native::scatter_shape_check(self, dim, index);
  CheckOverlaps(self, {&index});
  CheckFits(value, self.scalar_type());
  if (index.numel() > 0) Scatter(how, AtLeastLine(self), dim, AtLeastLine(index), value, Order::kAny);
}

Tensor& ScatterSource_(Tensor& self, int64_t dim, const Tensor& index, const Tensor& source) {
  if (!IsServed(self, ops::kAllTypes) || !IsIndex(index) || !IsOnDevice(source))
    return FallbackOf<at::_ops::scatter__src>::Call(self, dim, index, source);
  ScatterTensor(Combination::kPut, "scatter", self, dim, index, source);
  return self;
}

Tensor& ScatterValue_(Tensor& self, int64_t dim, const Tensor& index, const at::Scalar& value) {
  if (!IsServed(self, ops::kAllTypes) || !IsIndex(index) || value.isComplex())
    return FallbackOf<at::_ops::scatter__value>::Call(self, dim, index, value);
  ScatterNumber(Combination::kPut, "scatter", self, dim, index, value);
  return self;
}

Tensor& ScatterAdd_(Tensor& self, int64_t dim, const Tensor& index, const Tensor& source) {
  if (!IsServed(self, ops::kAllTypes) || !IsIndex(index) || !IsOnDevice(source))
    return FallbackOf<at::_ops::scatter_add_>::Call(self, dim, index, source);
  ScatterTensor(Combination::kAdd, "scatter_add", self, dim, index, source);
  return self;
}

Combination CombinationOf(c10::string_view reduce) {
  TORCH_CHECK(reduce == "add" || reduce == "multiply", "reduce argument must be either add or multiply.");
  return reduce == "add" ? Combination::kAdd : Combination::kMultiply;
}

Tensor& ScatterReduce_(Tensor& self, int64_t dim, const Tensor& index, const Tensor& source,
                       c10::string_view reduce) {
  if (!IsServed(self, ops::kAllTypes) || !IsIndex(index) || !IsOnDevice(source))
    return FallbackOf<at::_ops::scatter__reduce>::Call(self, dim, index, source, reduce);
  ScatterTensor(CombinationOf(reduce), "scatter", self, dim, index, source);
  return self;
}

Tensor& ScatterValueReduce_(Tensor& self, int64_t dim, const Tensor& index, const at::Scalar& value,
                            c10::string_view reduce) {
  if (!IsServed(self, ops::kAllTypes) || !IsIndex(index) || value.isComplex())
    return FallbackOf<at::_ops::scatter__value_reduce>::Call(self, dim, index, value, reduce);
  ScatterNumber(CombinationOf(reduce), "scatter", self, dim, index, value);
  return self;
}

// ---- reductions, also of what self holds ----

struct Reduction {
  Combination how = Combination::kAdd;
  bool mean = false;
};

Reduction ReductionOf(c10::string_view reduce) {
  if (reduce == "sum") return {Combination::kAdd};
  if (reduce == "mean") return {Combination::kAdd, true};
  if (reduce == "prod") return {Combination::kMultiply};
  if (reduce == "amax") return {Combination::kMax};
  TORCH_CHECK(reduce == "amin", "reduce argument must be either sum, prod, mean, amax or amin, got ", reduce);
  return {Combination::kMin};
}

// The number that does not change the others.
at::Scalar Neutral(Combination how, at::ScalarType type) {
  if (how == Combination::kAdd) return 0;
  if (how == Combination::kMultiply) return 1;
  const bool largest = how == Combination::kMin;
  const double infinity = std::numeric_limits<double>::infinity();
  if (c10::isFloatingType(type)) return largest ? infinity : -infinity;
  if (type == at::kBool) return largest;
  const int bits = static_cast<int>(c10::elementSize(type)) * 8;
  if (type == at::kByte) return largest ? 255 : 0;
  const int64_t most = bits == 64 ? std::numeric_limits<int64_t>::max() : (int64_t{1} << (bits - 1)) - 1;
  return largest ? most : -most - 1;
}

// Reduces in place. Elements that no index names keep their values. 16-bit elements are reduced in f32.
void ReduceInto(const Reduction& reduction, const Tensor& self, int64_t dim, const Tensor& index,
                const Tensor& source, bool include_self) {
  if (index.numel() == 0) return;
  const Tensor out = at::isReducedFloatingType(self.scalar_type()) ? self.to(at::kFloat) : self;
  if (!include_self)
    Scatter(Combination::kPut, out, dim, index, Neutral(reduction.how, out.scalar_type()), Order::kAny);
  Scatter(reduction.how, out, dim, index, source, Order::kAny);
  if (reduction.mean) {
    const Tensor counts = at::full(out.sizes(), include_self ? 1 : 0, out.options());
    Scatter(Combination::kAdd, counts, dim, index, at::Scalar(1), Order::kAny);
    counts.clamp_min_(1);
    if (c10::isFloatingType(out.scalar_type())) {
      out.div_(counts);
    } else {
      out.div_(counts, "floor");
    }
  }
  if (!out.is_same(self)) self.copy_(out);
}

Tensor& ScatterReduceTwo_(Tensor& self, int64_t dim, const Tensor& index, const Tensor& source,
                          c10::string_view reduce, bool include_self) {
  if (!IsServed(self, ops::kAllTypes) || !IsIndex(index) || !IsOnDevice(source) ||
      (self.scalar_type() == at::kBool && reduce == "mean")) {
    return FallbackOf<at::_ops::scatter_reduce__two>::Call(self, dim, index, source, reduce, include_self);
  }
  const Reduction reduction = ReductionOf(reduce);
  dim = at::maybe_wrap_dim(dim, self.dim());
  at::native::scatter_gather_dtype_check("scatter_reduce", self, index, source);
  at::native::scatter_shape_check(self, dim, index, source);
  CheckOverlaps(self, {&index, &source});
  if (index.numel() == 0) return self;
  const Tensor line = AtLeastLine(index);
  ReduceInto(reduction, AtLeastLine(self), dim, line, Covered(AtLeastLine(source), line), include_self);
  return self;
}

// ---- an index of one dimension ----

// self, index and source of index_add, index_copy and index_reduce as scatter takes them.
struct Along {
  Along(const Tensor& self, int64_t dim, const Tensor& index, const Tensor& source)
      : out(AtLeastLine(self)),
        source(source.dim() < out.dim() ? AtLeastLine(source) : source),
        index(IndexAlong(index, dim, this->source.sizes())) {}
  Tensor out, source, index;
};

void CheckSlices(const Tensor& self, int64_t dim, const Tensor& source) {
  bool same = std::max<int64_t>(self.dim(), 1) == std::max<int64_t>(source.dim(), 1);
  for (int64_t d = 0; same && d < std::min(self.dim(), source.dim()); ++d)
    same = d == dim || self.size(d) == source.size(d);
  TORCH_CHECK(same,
              "source tensor shape must match self tensor shape, excluding the specified dimension. Got "
              "self.shape = ",
              self.sizes(), " source.shape = ", source.sizes());
}

void CheckAlong(const std::string& name, const Tensor& self, int64_t dim, const Tensor& index,
                const Tensor& source) {
  TORCH_CHECK_INDEX(index.dim() <= 1, name,
                    "_(): Index is supposed to be a vector, but got dim: ", index.dim(),
                    " with type: ", index.scalar_type(), " and size: ", index.sizes());
  TORCH_CHECK(index.scalar_type() == at::kLong || index.scalar_type() == at::kInt, name,
              "_(): Expected dtype int32/int64 for index but got: ", index.scalar_type());
  TORCH_CHECK(self.scalar_type() == source.scalar_type(), name, "_(): self (", self.scalar_type(),
              ") and source (", source.scalar_type(), ") must have the same scalar type");
  TORCH_CHECK(dim == 0 || dim < source.dim(), name, "_(): Indexing dim ", dim,
              " is out of bounds of the source tensor with dim ", source.dim());
  const int64_t count = source.dim() == 0 ? 1 : source.size(dim);
  TORCH_CHECK(index.numel() == count, name, "_(): Number of indices (", index.numel(),
              ") should be equal to source.size(dim): (", count, "), for dim: ", dim);
  CheckSlices(self, dim, source);
  CheckOverlaps(self, {&index, &source});
}

Tensor& IndexAdd_(Tensor& self, int64_t dim, const Tensor& index, const Tensor& source,
                  const at::Scalar& alpha) {
  const bool fractional =
      alpha.isComplex() || (alpha.isFloatingPoint() && !c10::isFloatingType(self.scalar_type()));
  if (!IsServed(self, ops::kAllTypes) || !IsOnDevice(index) || !IsOnDevice(source) || fractional)
    return FallbackOf<at::_ops::index_add_>::Call(self, dim, index, source, alpha);
  dim = at::maybe_wrap_dim(dim, self.dim());
  CheckAlong("index_add", self, dim, index, source);
  const Tensor scaled = alpha.equal(1) ? source : source.mul(alpha).to(self.scalar_type());
  const Along along(self, dim, index, scaled);
  Scatter(Combination::kAdd, along.out, dim, along.index, along.source, Order::kAny);
  return self;
}

Tensor& IndexReduce_(Tensor& self, int64_t dim, const Tensor& index, const Tensor& source,
                     c10::string_view reduce, bool include_self) {
  if (!IsServed(self, ops::kNumericTypes) || !IsOnDevice(index) || !IsOnDevice(source))
    return FallbackOf<at::_ops::index_reduce_>::Call(self, dim, index, source, reduce, include_self);
  TORCH_CHECK(reduce == "prod" || reduce == "mean" || reduce == "amax" || reduce == "amin",
              "index_reduce(): Expected reduce to be one of prod, mean, amax or amin but got ", reduce, ".");
  dim = at::maybe_wrap_dim(dim, self.dim());
  CheckAlong("index_reduce", self, dim, index, source);
  const Along along(self, dim, index, source);
  ReduceInto(ReductionOf(reduce), along.out, dim, along.index, along.source, include_self);
  return self;
}

void CheckIndexCopy(const Tensor& self, int64_t dim, const Tensor& index, const Tensor& source) {
  TORCH_CHECK_INDEX(index.dim() < 2, "index_copy_(): Index should have dimension 1 or 0 (got ", index.dim(),
                    ")");
  TORCH_CHECK_INDEX(source.dim() > 0 || index.numel() == 1,
                    "index_copy_(): When source is scalar, index should have one element (got ",
                    index.numel(), ")");
  TORCH_CHECK_INDEX(source.dim() == self.dim() || source.dim() == 0 || self.dim() == 0,
                    "index_copy_(): When source and destination are not scalars, their dimensionality must "
                    "match. Source dimensionality (",
                    source.dim(), "), destination dimensionality (", self.dim(), ")");
  TORCH_CHECK(index.scalar_type() == at::kLong || index.scalar_type() == at::kInt,
              "index_copy_(): Expected a long tensor for index, but got ", index.scalar_type());
  TORCH_CHECK(self.scalar_type() == source.scalar_type(),
              "index_copy_(): self and source expected to have the same dtype, but got (self) ",
              self.scalar_type(), " and (source) ", source.scalar_type());
  CheckSlices(self, dim, source);
  TORCH_CHECK_INDEX(source.dim() == 0 || index.numel() == source.size(dim),
                    "index_copy_(): Number of indices (", index.numel(),
                    ") should be equal to source.size(dim) (", source.dim() == 0 ? 1 : source.size(dim), ")");
  CheckOverlaps(self, {&index, &source});
}

Tensor& IndexCopy_(Tensor& self, int64_t dim, const Tensor& index, const Tensor& source) {
  if (!IsServed(self, ops::kAllTypes) || !IsOnDevice(index) || !IsOnDevice(source))
    return FallbackOf<at::_ops::index_copy_>::Call(self, dim, index, source);
  dim = at::maybe_wrap_dim(dim, self.dim());
  CheckIndexCopy(self, dim, index, source);
  const Along along(self, dim, index, source);
  Scatter(Combination::kPut, along.out, dim, along.index, along.source, Order::kAny);
  return self;
}

// The index of index_fill for a tensor of `self`'s sizes. Negative indices count from the end.
Tensor FillIndex(const Tensor& self, int64_t dim, const Tensor& index) {
  TORCH_CHECK_INDEX(index.scalar_type() == at::kLong || index.scalar_type() == at::kInt,
                    "index_fill_(): Expected dtype int64 for index.");
  TORCH_CHECK(index.dim() <= 1, "Index has to be a vector/scalar");
  at::assert_no_overlap(self, index);
  CheckSameDevice(self.device(), index.device());
  const Tensor wrapped = WrapIndex(index, self.size(dim), dim);
  c10::SmallVector<int64_t, ops::kMaxRank> sizes(self.sizes());
  sizes[static_cast<size_t>(dim)] = index.numel();
  return IndexAlong(wrapped, dim, sizes);
}

Tensor& IndexFillScalar_(Tensor& self, int64_t dim, const Tensor& index, const at::Scalar& value) {
  if (!IsServed(self, ops::kAllTypes) || !IsOnDevice(index) || value.isComplex())
    return FallbackOf<at::_ops::index_fill__int_Scalar>::Call(self, dim, index, value);
  dim = at::maybe_wrap_dim(dim, self.dim());
  CheckFits(value, self.scalar_type());
  WarnOfExpanded(self, "index_fill_", "tensor[mask] = scalar");
  const Tensor out = AtLeastLine(self);
  Scatter(Combination::kPut, out, dim, FillIndex(out, dim, index), value, Order::kAny);
  return self;
}

Tensor& IndexFillTensor_(Tensor& self, int64_t dim, const Tensor& index, const Tensor& value) {
  TORCH_CHECK(value.dim() == 0,
              "index_fill_ only supports a 0-dimensional value tensor, but got tensor with ", value.dim(),
              " dimension(s).");
  if (!IsServed(self, ops::kAllTypes) || !IsOnDevice(index) || !IsServed(value, ops::kAllTypes))
    return self.index_fill_(dim, index, value.item());
  dim = at::maybe_wrap_dim(dim, self.dim());
  at::assert_no_overlap(self, value);
  WarnOfExpanded(self, "index_fill_", "tensor[mask] = scalar");
  const Tensor out = AtLeastLine(self), along = FillIndex(out, dim, index);
  Scatter(Combination::kPut, out, dim, along, value.expand(along.sizes()), Order::kAny);
  return self;
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("scatter.src", XPUD_FN(Copied<&ScatterSource_>::Call));
  m.impl("scatter_.src", XPUD_FN(ScatterSource_));
  m.impl("scatter.value", XPUD_FN(Copied<&ScatterValue_>::Call));
  m.impl("scatter_.value", XPUD_FN(ScatterValue_));
  m.impl("scatter.reduce", XPUD_FN(Copied<&ScatterReduce_>::Call));
  m.impl("scatter_.reduce", XPUD_FN(ScatterReduce_));
  m.impl("scatter.value_reduce", XPUD_FN(Copied<&ScatterValueReduce_>::Call));
  m.impl("scatter_.value_reduce", XPUD_FN(ScatterValueReduce_));
  m.impl("scatter_add", XPUD_FN(Copied<&ScatterAdd_>::Call));
  m.impl("scatter_add_", XPUD_FN(ScatterAdd_));
  m.impl("scatter_reduce.two", XPUD_FN(Copied<&ScatterReduceTwo_>::Call));
  m.impl("scatter_reduce_.two", XPUD_FN(ScatterReduceTwo_));
  m.impl("index_add", XPUD_FN(Copied<&IndexAdd_>::Call));
  m.impl("index_add_", XPUD_FN(IndexAdd_));
  m.impl("index_reduce", XPUD_FN(Copied<&IndexReduce_>::Call));
  m.impl("index_reduce_", XPUD_FN(IndexReduce_));
  m.impl("index_copy", XPUD_FN(Copied<&IndexCopy_>::Call));
  m.impl("index_copy_", XPUD_FN(IndexCopy_));
  m.impl("index_fill_.int_Scalar", XPUD_FN(IndexFillScalar_));
  m.impl("index_fill_.int_Tensor", XPUD_FN(IndexFillTensor_));
}

}  // namespace
}  // namespace xpud::shim
