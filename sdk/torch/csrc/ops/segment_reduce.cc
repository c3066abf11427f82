// segment_reduce and its gradient.
#include <ATen/ATen.h>
#include <ATen/WrapDimUtils.h>
#include <torch/library.h>

#include <limits>

#include "sdk/torch/csrc/call/kernel.h"
#include "sdk/torch/csrc/engines/copy.h"
#include "sdk/torch/csrc/engines/segments.h"
#include "sdk/torch/csrc/fallback/fallback.h"

namespace xpud::shim {
namespace {

using at::Tensor;

const ops::Row& SumRow() {
  static const ops::Row& row = ops::RowOf("xpud::segment_sum");
  return row;
}
const ops::Row& RowFor(c10::string_view reduce) {
  static const ops::Row &prod = ops::RowOf("xpud::segment_prod"), &most = ops::RowOf("xpud::segment_max"),
                        &least = ops::RowOf("xpud::segment_min");
  if (reduce == "prod") return prod;
  return reduce == "max" ? most : reduce == "min" ? least : SumRow();
}

// Data as rows, one for each position, and the segments of all rows of lengths or offsets, one after another.
struct Flat {
  int64_t outer = 1, inner = 1, count = 0, segments = 0;
  Tensor data;      // [outer * count, inner]
  Segments bounds;  // [outer * segments]
  Tensor lengths;   // [outer * segments, 1]
};

Flat Flatten(const Tensor& data, const OptionalTensor& lengths, const OptionalTensor& offsets, int64_t axis) {
  Flat flat;
  for (int64_t d = 0; d < data.dim(); ++d)
    (d < axis   ? flat.outer
     : d > axis ? flat.inner
                : flat.count) = (d < axis   ? flat.outer
                                 : d > axis ? flat.inner
                                            : int64_t{1}) *
                                data.size(d);
  flat.data = Contiguous(data).view({flat.outer * flat.count, flat.inner});
  const bool by_offsets = IsGiven(offsets);
  const Tensor given = by_offsets ? *offsets : *lengths;
  flat.segments = given.size(axis) - (by_offsets ? 1 : 0);
  const Tensor rows = given.to(at::kLong).reshape({flat.outer, given.size(axis)});
  const Tensor shift = at::arange(flat.outer, rows.options()).unsqueeze(1).mul_(flat.count);
  const Tensor begins = by_offsets ? rows.narrow(1, 0, flat.segments) : rows.cumsum(1).sub_(rows);
  const Tensor sizes = by_offsets ? rows.narrow(1, 1, flat.segments).sub(begins) : rows;
  flat.bounds.begins = begins.add(shift).view({-1});
  flat.lengths = Contiguous(sizes).view({-1, 1});
  flat.bounds.ends = flat.bounds.begins.add(flat.lengths.view({-1}));
  return flat;
}

void CheckBounds(const Tensor& data, const Tensor& bounds, int64_t axis, const char* name) {
  CheckSameDevice(data.device(), bounds.device());
  TORCH_CHECK(data.dim() >= bounds.dim());
  TORCH_CHECK(axis == bounds.dim() - 1, "segment_reduce(): Expected axis to be the last dimension of ", name,
              " but got ", axis, ".");
  TORCH_CHECK(
      bounds.sizes().slice(0, static_cast<size_t>(axis)) == data.sizes().slice(0, static_cast<size_t>(axis)),
      "segment_reduce(): the sizes of ", name, " do not fit those of data before the axis");
}

// Waits.
void CheckLengths(const Tensor& data, const Tensor& lengths, int64_t axis) {
  if (lengths.numel() == 0) return;
  const Tensor known = at::stack({lengths.min().ge(0), lengths.sum(-1).eq(data.size(axis)).all()}).cpu();
  TORCH_CHECK(known[0].item<bool>(), "lengths contains negative value!");
  TORCH_CHECK(known[1].item<bool>(),
              "segment_reduce(): Expected all rows of lengths along axis to sum to "
              "data.size(lengths.dim()-1) when !unsafe.");
}

// What a segment without elements gives.
double EmptyValue(c10::string_view reduce, const std::optional<at::Scalar>& initial) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (initial.has_value()) return initial->toDouble();
  if (reduce == "mean") return std::numeric_limits<double>::quiet_NaN();
  if (reduce == "prod") return 1;
  return reduce == "max" ? -kInfinity : reduce == "min" ? kInfinity : 0;
}

bool IsReduction(c10::string_view reduce) {
  return reduce == "max" || reduce == "mean" || reduce == "min" || reduce == "sum" || reduce == "prod";
}

// Takes the initial value into the reductions `out` of segments that have elements.
Tensor WithInitial(const Tensor& out, c10::string_view reduce, const Tensor& is_empty,
                   const at::Scalar& initial) {
  const Tensor with = reduce == "prod"  ? out.mul(initial)
                      : reduce == "max" ? out.clamp_min(initial)
                      : reduce == "min" ? out.clamp_max(initial)
                                        : out.add(initial);
  return at::where(is_empty, out, with);
}

bool IsServedSegments(const Tensor& data, const OptionalTensor& lengths, const OptionalTensor& offsets) {
  return IsServed(data, ops::kFloatTypes) && data.dim() > 0 &&
         (!IsGiven(lengths) || IsServed(*lengths, ops::kIndexTypes)) &&
         (!IsGiven(offsets) || IsServed(*offsets, ops::kIndexTypes));
}

Tensor SegmentReduce(const Tensor& data, c10::string_view reduce, const OptionalTensor& lengths,
                     const OptionalTensor& indices, const OptionalTensor& offsets, int64_t axis, bool unsafe,
                     const std::optional<at::Scalar>& initial) {
  TORCH_CHECK(!IsGiven(indices), "segment_reduce(): indices based reduction is not supported yet.");
  TORCH_CHECK(IsGiven(lengths) || IsGiven(offsets),
              "segment_reduce(): Either lengths or offsets must be defined.");
  TORCH_CHECK(IsReduction(reduce), "unsupported reduction given! ", reduce);
  if (!IsServedSegments(data, lengths, offsets)) {
    return FallbackOf<at::_ops::segment_reduce>::Call(data, reduce, lengths, indices, offsets, axis, unsafe,
                                                      initial);
  }
  axis = at::maybe_wrap_dim(axis, data.dim());
  CheckBounds(data, IsGiven(offsets) ? *offsets : *lengths, axis, IsGiven(offsets) ? "offsets" : "lengths");
  if (!IsGiven(offsets) && !unsafe) CheckLengths(data, *lengths, axis);
  const Flat flat = Flatten(data, lengths, offsets, axis);
  Tensor out =
      at::full({flat.outer * flat.segments, flat.inner}, EmptyValue(reduce, initial), data.options());
  ReduceSegments(RowFor(reduce), out, flat.data, flat.bounds);
  const Tensor is_empty = flat.lengths.le(0);
  if (initial.has_value()) out = WithInitial(out, reduce, is_empty, *initial);
  if (reduce == "mean") out = at::where(is_empty, out, out.div(flat.lengths));
  std::vector<int64_t> sizes = data.sizes().vec();
  sizes[static_cast<size_t>(axis)] = flat.segments;
  return out.view(sizes);
}

// ---- gradient ----

// Rows of `segments` for each position.
struct Spread {
  Tensor of;
  Tensor operator()(const Tensor& segments) const { return segments.index_select(0, of); }
};

Tensor SumOfSegments(const Flat& flat, const Tensor& rows) {
  const Tensor out = at::zeros({flat.outer * flat.segments, flat.inner}, rows.options());
  ReduceSegments(SumRow(), out, rows, flat.bounds);
  return out;
}

// The largest (or smallest) elements of a segment share a positive gradient, as in ATen; each has a negative
// one whole.
Tensor ExtremeGradient(const Flat& flat, const Spread& spread, const Tensor& gradient, const Tensor& output) {
  const Tensor chosen = flat.data.eq(spread(output)).logical_or_(flat.data.isnan());
  const Tensor counts = spread(SumOfSegments(flat, chosen.to(at::kLong)));
  const Tensor whole = spread(gradient);
  return at::where(chosen, at::where(whole.gt(0), whole.div(counts), whole), 0.0).to(gradient.scalar_type());
}

// The gradient of an element is that of the product times the product of the other elements. Of a zero or a
// NaN this is not the product divided by the element.
Tensor ProductGradient(const Flat& flat, const Spread& spread, const Tensor& gradient, const Tensor& output,
                       const at::Scalar& initial) {
  static const ops::Row& row = ops::RowOf("xpud::segment_prod");
  const Tensor zeros = flat.data.eq(0), nans = flat.data.isnan(), special = zeros.logical_or(nans);
  const Tensor ordinary = flat.data.masked_fill(special, 1);
  const Tensor products = at::ones_like(output);
  ReduceSegments(row, products, ordinary, flat.bounds);
  const auto others = [&](const Tensor& which) {
    const Tensor counted = which.to(at::kLong);
    return spread(SumOfSegments(flat, counted)).sub_(counted);
  };
  Tensor rest = spread(products).mul_(initial);
  rest.masked_fill_(others(zeros).gt(0), 0);
  rest.masked_fill_(others(nans).gt(0), std::numeric_limits<double>::quiet_NaN());
  const Tensor whole = spread(gradient);
  return at::where(special, whole.mul(rest), whole.mul(spread(output)).div_(ordinary));
}

Tensor SegmentReduceBackward(const Tensor& gradient, const Tensor& output, const Tensor& data,
                             c10::string_view reduce, const OptionalTensor& lengths,
                             const OptionalTensor& offsets, int64_t axis,
                             const std::optional<at::Scalar>& initial) {
  if (!IsServedSegments(data, lengths, offsets) || !IsOnDevice(gradient) || !IsOnDevice(output)) {
    return FallbackOf<at::_ops::_segment_reduce_backward>::Call(gradient, output, data, reduce, lengths,
                                                                offsets, axis, initial);
  }
  axis = at::maybe_wrap_dim(axis, data.dim());
  const Flat flat = Flatten(data, lengths, offsets, axis);
  if (data.numel() == 0 || flat.segments == 0) return at::zeros(data.sizes(), data.options());
  const Tensor of = SegmentOf(flat.bounds.begins, flat.outer * flat.count);
  const Spread spread{of.clamp_min(0)};
  const Tensor positions = at::arange(of.numel(), of.options());
  const Tensor covered = of.ge(0).logical_and_(positions.lt(spread(flat.bounds.ends))).unsqueeze(1);
  const Tensor rows = Contiguous(gradient).view({-1, flat.inner}),
               results = Contiguous(output).view({-1, flat.inner});
  Tensor out;
  if (reduce == "max" || reduce == "min") {
    out = ExtremeGradient(flat, spread, rows, results);
  } else if (reduce == "prod") {
    out = ProductGradient(flat, spread, rows, results, initial.value_or(1));
  } else {
    out = spread(reduce == "mean" ? rows.div(flat.lengths) : rows);
  }
  return at::where(covered, out, at::zeros({}, out.options())).view(data.sizes());
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("segment_reduce", XPUD_FN(SegmentReduce));
  m.impl("_segment_reduce_backward", XPUD_FN(SegmentReduceBackward));
}

}  // namespace
}  // namespace xpud::shim
