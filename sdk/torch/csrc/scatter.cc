// Operators that write or combine at indices: scatter, index_add, index_copy, index_fill, index_reduce,
// index_put, put, masked_scatter; and repeat_interleave, which counts with one.
//
// All are one row family: scatter along a dimension, in the order of the index or in any order. Operators
// with an index of one dimension repeat it with stride 0.
#include "sdk/torch/csrc/scatter.h"

#include <ATen/ATen.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/TensorUtils.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/native/ScatterGatherChecks.h>
#include <torch/library.h>

#include "proto/ops/families/scatter.h"
#include "proto/ops/invalid_index.h"
#include "sdk/torch/csrc/command.h"
#include "sdk/torch/csrc/copy.h"
#include "sdk/torch/csrc/device_check.h"
#include "sdk/torch/csrc/errors.h"
#include "sdk/torch/csrc/factories.h"
#include "sdk/torch/csrc/fallback.h"
#include "sdk/torch/csrc/kernel.h"
#include "sdk/torch/csrc/list_command.h"
#include "sdk/torch/csrc/map.h"
#include "sdk/torch/csrc/positions.h"

namespace xpud::shim {

using at::Tensor;

namespace {

const ops::Row& RowOf(Combination how, Order order) {
  static const std::array<const ops::Row*, 3> any_order = {&ops::RowOf("xpud::scatter_any_order"),
                                                           &ops::RowOf("xpud::scatter_add_any_order"),
                                                           &ops::RowOf("xpud::scatter_mul_any_order")};
  const auto number = static_cast<size_t>(how);
  if (order == Order::kAny && number < any_order.size() && IsKnown(*any_order[number]) &&
      !at::globalContext().deterministicAlgorithms())
    return *any_order[number];
  static const std::array<const ops::Row*, 5> rows = {
      &ops::RowOf("xpud::scatter"), &ops::RowOf("xpud::scatter_add"), &ops::RowOf("xpud::scatter_mul"),
      &ops::RowOf("xpud::scatter_max"), &ops::RowOf("xpud::scatter_min")};
  return *rows[number];
}

void SendScatter(Combination how, const Tensor& out, int64_t dim, const Tensor& index,
                 const TensorRef& source, Order order) {
  if (index.numel() == 0) return;
  ThrowUnlessIndexable(out.size(dim), dim);
  const bool rounds = at::isReducedFloatingType(out.scalar_type()) &&
                      (how == Combination::kAdd || how == Combination::kMultiply);
  const Tensor target = rounds ? out.to(at::kFloat) : out;
  Send(RowOf(how, order),
       ops::ScatterCall<TensorRef>{
           .out = Describe(target), .index = Describe(index), .source = source, .dim = dim},
       target);
  if (rounds) out.copy_(target);
}

}  // namespace

void Scatter(Combination how, const Tensor& out, int64_t dim, const Tensor& index, const Tensor& source,
             Order order) {
  SendScatter(how, out, dim, index, Describe(source), order);
}

void Scatter(Combination how, const Tensor& out, int64_t dim, const Tensor& index, const at::Scalar& number,
             Order order) {
  SendScatter(how, out, dim, index, *ToImmediate(number), order);
}

Tensor IndexAlong(const Tensor& vector, int64_t dim, c10::IntArrayRef sizes) {
  c10::SmallVector<int64_t, ops::kMaxRank> strides(sizes.size(), 0);
  strides[static_cast<size_t>(dim)] = vector.dim() == 0 ? 1 : vector.stride(0);
  return vector.as_strided(sizes, strides);
}

namespace {

Tensor AtLeastLine(const Tensor& tensor) { return tensor.dim() == 0 ? tensor.view(1) : tensor; }

bool IsIndex(const Tensor& index) { return IsOnDevice(index) && index.dim() <= ops::kMaxRank; }

void CheckOverlaps(const Tensor& self, std::initializer_list<const Tensor*> others) {
  at::assert_no_internal_overlap(self);
  for (const Tensor* const other : others) {
    CheckSameDevice(self.device(), other->device());
    at::assert_no_overlap(self, *other);
  }
}

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

// `use` is advanced indexing that does the same.
void WarnOfExpanded(const Tensor& self, const char* op, const char* use) {
  if (at::has_internal_overlap(self) != at::MemOverlap::Yes) return;
  TORCH_WARN(
      "Use of ", op,
      " on expanded tensors is deprecated. Please clone() the tensor before performing this operation. "
      "This also applies to advanced indexing e.g. ",
      use);
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

Tensor Take(const Tensor& self, const Tensor& index) {
  if (!IsServed(self, ops::kAllTypes) || !IsOnDevice(index))
    return FallbackOf<at::_ops::take>::Call(self, index);
  TORCH_CHECK(index.scalar_type() == at::kLong, "take(): Expected a long tensor for index, but got ",
              index.scalar_type());
  TORCH_CHECK_INDEX(self.numel() != 0 || index.numel() == 0, "take(): tried to take from an empty tensor");
  if (index.numel() == 0) return MakeEmpty(index.sizes(), self.scalar_type(), self.device());
  const Tensor position = WrapIndex(index, self.numel(), ops::kNoDimension);
  return self.reshape({-1}).index_select(0, position.view({-1})).view(index.sizes());
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

// ---- repeat_interleave ----

// Returns the sum of `repeats`, whose running sums are `ends`.
int64_t TotalOf(const Tensor& repeats, const Tensor& ends) {
  const Tensor known = at::stack({ends[-1], repeats.min().to(at::kLong)}).cpu();
  TORCH_CHECK(known[1].item<int64_t>() >= 0, "repeats can not be negative");
  return known[0].item<int64_t>();
}

// Position j of the result is the number of ends up to j: ends are counted where they are, and added up.
Tensor RepeatInterleave(const Tensor& repeats, std::optional<int64_t> output_size) {
  if (!IsServed(repeats, ops::kIndexTypes))
    return FallbackOf<at::_ops::repeat_interleave_Tensor>::Call(repeats, output_size);
  TORCH_CHECK(repeats.dim() == 1, "repeat_interleave only accept 1D vector as repeat");
  if (repeats.size(0) == 0) return at::empty_like(repeats, at::MemoryFormat::Contiguous);
  const Tensor ends = repeats.cumsum(0, at::kLong);
  const int64_t total = output_size.has_value() ? *output_size : TotalOf(repeats, ends);
  const Tensor counts = at::zeros({total + 1}, ends.options());
  Scatter(Combination::kAdd, counts, 0, ends, at::Scalar(1));
  return counts.cumsum(0).narrow(0, 0, total).to(repeats.scalar_type());
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
  m.impl("_index_put_impl_", XPUD_FN(IndexPut_));
  m.impl("put_", XPUD_FN(Put_));
  m.impl("take", XPUD_FN(Take));
  m.impl("masked_scatter_", XPUD_FN(MaskedScatter_));
  m.impl("repeat_interleave.Tensor", XPUD_FN(RepeatInterleave));
}

}  // namespace
}  // namespace xpud::shim
