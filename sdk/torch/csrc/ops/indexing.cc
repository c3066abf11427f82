// Gathering, joining and counting: cat, arange, index_select, gather, take, indexing by tensors,
// repeat_interleave.
#include <ATen/ATen.h>
#include <ATen/TensorIndexing.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/WrapDimUtilsMulti.h>
#include <ATen/native/RangeUtils.h>
#include <ATen/native/Resize.h>
#include <ATen/native/TensorShape.h>
#include <ATen/native/TypeProperties.h>
#include <torch/library.h>

#include <cmath>

#include "proto/ops/families/concat.h"
#include "proto/ops/families/flip.h"
#include "proto/ops/families/gather.h"
#include "proto/ops/invalid_index.h"
#include "sdk/torch/csrc/call/command.h"
#include "sdk/torch/csrc/call/kernel.h"
#include "sdk/torch/csrc/engines/copy.h"
#include "sdk/torch/csrc/engines/map.h"
#include "sdk/torch/csrc/engines/positions.h"
#include "sdk/torch/csrc/engines/scatter.h"
#include "sdk/torch/csrc/fallback/fallback.h"
#include "sdk/torch/csrc/runtime/errors.h"
#include "sdk/torch/csrc/runtime/storage.h"

namespace xpud::shim {
namespace {

using at::Tensor;

// ---- cat ----

bool IsSkipped(const Tensor& tensor) {
  return tensor.dim() == 1 && tensor.size(0) == 0;
}  // ATen's legacy empty tensor

// Tensors of one command: with the output, descriptors of maximal rank fit into one command.
constexpr size_t kMaxJoined = 400;

// Concatenates `tensors`, none of which is empty, into `out`.
void Join(std::span<const Tensor> tensors, int64_t dim, const Tensor& out, bool served) {
  static const ops::Row& row = ops::RowOf("cat");
  if (!served || tensors.size() == 1) {
    out.copy_(tensors[0]);
    return;
  }
  std::vector<TensorRef> inputs;
  for (const Tensor& tensor : tensors) inputs.push_back(Describe(tensor));
  const TensorRef output = Describe(out);
  const std::vector<ops::Number> attributes = ops::AttributesOf<ops::ConcatCall>({.dim = dim});
  const uint16_t length = static_cast<uint16_t>(tensors.size());
  Execute({.row = &row,
           .compute = output.dtype,
           .outputs = {&output, 1},
           .inputs = inputs,
           .attributes = attributes,
           .lists = {&length, 1}},
          DeviceIndexOf(out));
}

Tensor Cat(const at::ITensorListRef& list, int64_t dim) {
  const auto tensors = list.materialize();
  TORCH_CHECK(!tensors.empty(), "torch.cat(): expected a non-empty list of Tensors");
  std::vector<Tensor> given;
  for (const Tensor& tensor : tensors) {
    TORCH_CHECK(tensor.dim() > 0, "zero-dimensional tensor (at position ", given.size(),
                ") cannot be concatenated");
    CheckSameDevice(tensors[0].get().device(), tensor.device());
    given.push_back(tensor);
  }
  const at::ScalarType type = at::native::result_type(list);
  const Tensor* like = nullptr;
  auto format = given[0].suggest_memory_format();
  for (const Tensor& tensor : given) {
    if (tensor.suggest_memory_format() != format) format = at::MemoryFormat::Contiguous;
    if (like == nullptr && !IsSkipped(tensor)) like = &tensor;
  }
  if (like == nullptr) return MakeEmpty({0}, type, given[0].device());
  dim = at::maybe_wrap_dim(dim, like->dim());
  c10::SmallVector<int64_t, 8> sizes(like->sizes());
  sizes[dim] = 0;
  for (size_t i = 0; i < given.size(); ++i) {
    if (IsSkipped(given[i])) continue;
    at::native::check_cat_shape_except_dim(*like, given[i], dim, static_cast<int64_t>(i));
    sizes[dim] += given[i].size(dim);
  }
  Tensor out = at::empty(sizes, like->options().dtype(type).memory_format(format));
  std::erase_if(given, [](const Tensor& tensor) { return tensor.numel() == 0; });
  const bool served =
      out.dim() <= ops::kMaxRank && IsSupported(type) && std::ranges::all_of(given, [](const Tensor& tensor) {
        return IsOnDevice(tensor) && IsSupported(tensor.scalar_type());
      });
  int64_t at = 0;
  for (size_t first = 0; first < given.size();) {
    const size_t count = served ? std::min(given.size() - first, kMaxJoined) : 1;
    const std::span<const Tensor> some(given.data() + first, count);
    int64_t size = 0;
    for (const Tensor& tensor : some) size += tensor.size(dim);
    Join(some, dim, out.narrow(dim, at, size), served);
    at += size;
    first += count;
  }
  return out;
}

// ---- ranges ----

Tensor& ArangeOut(const at::Scalar& start, const at::Scalar& end, const at::Scalar& step, Tensor& out) {
  static const ops::Row& row = ops::RowOf("arange");
  if (!IsOnDevice(out) || !IsSupported(out.scalar_type(), row.dtypes))
    return FallbackOf<at::_ops::arange_start_out>::Call(start, end, step, out);
  const bool integral = c10::isIntegralType(out.scalar_type(), false);
  const int64_t count = out.scalar_type() == at::kLong
                            ? at::native::compute_arange_size<int64_t>(start, end, step)
                            : at::native::compute_arange_size<double>(start, end, step);
  if (out.numel() != count) {
    if (out.numel() > 0) {
      TORCH_WARN(
          "The number of elements in the out tensor of shape ", out.sizes(), " is ", out.numel(),
          " which does not match the computed number of elements ", count,
          ". Note that this may occur as a result of rounding error. The out tensor will be resized to a "
          "tensor of shape (",
          count, ",).");
    }
    out.resize_({count});
  }
  const Tensor target = out.is_contiguous() ? out : MakeEmpty(out.sizes(), out.scalar_type(), out.device());
  const MapInput inputs[] = {{integral ? at::Scalar(start.toLong()) : start, false},
                             {integral ? at::Scalar(step.toLong()) : step, false}};
  LaunchMap(row, *ToDType(out.scalar_type()), {&target, 1}, inputs);
  if (!target.is_same(out)) out.copy_(target);
  return out;
}

// ---- index_select, gather ----

const ops::Row& GatherRow() {
  static const ops::Row& row = ops::RowOf("index_select");
  return row;
}

bool IsIndex(const Tensor& index) {
  return IsOnDevice(index) && (index.scalar_type() == at::kLong || index.scalar_type() == at::kInt);
}

bool CanGather(const Tensor& self, const Tensor& index) {
  return IsOnDevice(self) && IsIndex(index) && IsSupported(self.scalar_type()) &&
         self.dim() <= ops::kMaxRank && self.dim() > 0;
}

void LaunchGather(const Tensor& out, const Tensor& self, int64_t dim, const TensorRef& index) {
  if (out.numel() == 0) return;
  Send(GatherRow(),
       ops::GatherCall<TensorRef>{.out = Describe(out), .self = Describe(self), .index = index, .dim = dim},
       out);
}

Tensor IndexSelect(const Tensor& self, int64_t dim, const Tensor& index) {
  TORCH_CHECK_INDEX(index.dim() <= 1, "index_select(): Index is supposed to be a vector");
  TORCH_CHECK(index.scalar_type() == at::kLong || index.scalar_type() == at::kInt,
              "index_select(): Expected dtype int32 or int64 for index");
  TORCH_CHECK(self.dim() > 0 || index.numel() == 1,
              "index_select(): Index to scalar can have only 1 value, got ", index.numel(), " value(s)");
  dim = at::maybe_wrap_dim(dim, self.dim());
  if (self.dim() == 0 && IsOnDevice(self))
    return IndexSelect(self.view(1), 0, index).view(c10::IntArrayRef{});
  if (!CanGather(self, index)) return FallbackOf<at::_ops::index_select>::Call(self, dim, index);
  TORCH_CHECK_INDEX(self.size(dim) > 0 || index.numel() == 0,
                    "index_select(): self indexing axis dim should be positive");
  c10::SmallVector<int64_t, 8> sizes(self.sizes());
  sizes[dim] = index.numel();
  Tensor out = MakeEmpty(sizes, self.scalar_type(), self.device());
  const int64_t count = index.numel();
  const Tensor dense = Contiguous(index);
  LaunchGather(out, self, dim, DescribeAs(dense, {&count, 1}));
  return out;
}

Tensor Gather(const Tensor& self, int64_t dim, const Tensor& index, bool sparse_gradient) {
  TORCH_CHECK(index.scalar_type() == at::kLong || index.scalar_type() == at::kInt || index.numel() == 0,
              "gather(): Expected dtype int32/int64 for index");
  dim = at::maybe_wrap_dim(dim, self.dim());
  if (index.numel() == 0) return MakeEmpty(index.sizes(), self.scalar_type(), self.device());
  if (!CanGather(self, index) || index.dim() != self.dim())
    return FallbackOf<at::_ops::gather>::Call(self, dim, index, sparse_gradient);
  for (int64_t d = 0; d < self.dim(); ++d) {
    TORCH_CHECK(d == dim || index.size(d) <= self.size(d), "Size does not match at dimension ", d,
                " expected index ", index.sizes(), " to be no larger than self ", self.sizes(),
                " apart from dimension ", dim);
  }
  ThrowUnlessIndexable(self.size(dim), dim);
  Tensor out = MakeEmpty(index.sizes(), self.scalar_type(), self.device());
  LaunchGather(out, self, dim, Describe(index));
  return out;
}

// ---- self[.., index, ..] ----

Tensor MaskedSelect(const Tensor& self, const Tensor& mask) {
  TORCH_CHECK(mask.scalar_type() == at::kBool, "masked_select: expected BoolTensor for mask");
  const auto shape = at::infer_size(self.sizes(), mask.sizes());
  const Tensor positions = mask.expand(shape).reshape({-1}).nonzero().squeeze(1);
  return self.expand(shape).reshape({-1}).index_select(0, positions);
}

// Returns the result with ATen's strides, which follow those of the view that is indexed.
Tensor WithStridesOfIndex(const Tensor& result, const Positions& positions) {
  if (positions.view.is_contiguous()) return result;
  const auto like = [](const Tensor& tensor) {
    return at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options().device(at::kMeta));
  };
  c10::List<std::optional<Tensor>> indices;
  for (int64_t d = 0; d < positions.first; ++d) indices.push_back(std::nullopt);
  for (const Tensor& index : positions.indices) indices.push_back(like(index));
  const Tensor meta = at::index(like(positions.view), indices);
  if (meta.strides() == result.strides()) return result;
  return at::empty_strided(meta.sizes(), meta.strides(), result.options()).copy_(result);
}

bool HasIndex(const c10::List<std::optional<Tensor>>& indices) {
  for (size_t d = 0; d < indices.size(); ++d) {
    const std::optional<Tensor> index = indices.get(d);
    if (index.has_value() && index->defined()) return true;
  }
  return false;
}

Tensor IndexTensor(const Tensor& self, const c10::List<std::optional<Tensor>>& indices) {
  TORCH_CHECK(IsOnDevice(self),
              "indices should be either on cpu or on the same device as the indexed tensor (", self.device(),
              ")");
  if (CanIndexPairs(self, indices)) {
    const Tensor pairs = IndexTensor(at::view_as_real(self.resolve_conj()), indices);
    return at::view_as_complex(pairs.stride(-1) == 1 ? pairs : pairs.contiguous());
  }
  if (!IsServed(self, ops::kAllTypes) || !HasIndex(indices))
    return FallbackOf<at::_ops::index_Tensor>::Call(self, indices);
  const Positions positions = FindPositions(self, indices);
  Tensor result = MakeEmpty(positions.result, self.scalar_type(), self.device());
  if (result.numel() > 0) {
    const Tensor source =
        positions.indices.size() == 1 ? positions.view : positions.view.reshape(positions.flat);
    result = IndexSelect(source, positions.first, positions.index.reshape({-1})).view(positions.result);
  }
  return WithStridesOfIndex(result, positions);
}

// ---- ranges of numbers ----

// Computes `row` of the range's numbers, and of `base` if there is one.
void Range(const ops::Row& row, const at::Scalar& start, const at::Scalar& end, int64_t steps,
           std::optional<double> base, Tensor& out) {
  if (out.numel() != steps) out.resize_({steps});
  if (steps == 0) return;
  if (steps == 1) {
    out.fill_(base.has_value() ? at::Scalar(std::pow(*base, start.toDouble())) : start);
    return;
  }
  const at::ScalarType type = out.scalar_type();
  const bool integral = c10::isIntegralType(type, false);
  // f32 does not hold the numbers of larger elements.
  const bool wide = integral || type == at::kDouble || steps > (int64_t{1} << 24);
  const double first = integral ? static_cast<double>(start.toLong()) : start.toDouble();
  const double last = integral ? static_cast<double>(end.toLong()) : end.toDouble();
  const double step = (last - first) / static_cast<double>(steps - 1);
  const Tensor target = out.is_contiguous() ? out : MakeEmpty(out.sizes(), type, out.device());
  const MapInput inputs[] = {{first, false},     {last, false},  {step, false},
                             {steps / 2, false}, {steps, false}, {base.value_or(0), false}};
  LaunchMap(row, wide ? ops::DType::kFloat64 : ops::DType::kFloat32, {&target, 1},
            {inputs, base.has_value() ? 6u : 5u});
  if (!out.is_contiguous()) out.copy_(target);
}

Tensor& LinspaceOut(const at::Scalar& start, const at::Scalar& end, int64_t steps, Tensor& out) {
  static const ops::Row& row = ops::RowOf("xpud::linspace");
  TORCH_CHECK(steps >= 0, "number of steps must be non-negative");
  if (!IsOnDevice(out) || !IsSupported(out.scalar_type(), row.dtypes))
    return FallbackOf<at::_ops::linspace_out>::Call(start, end, steps, out);
  Range(row, start, end, steps, std::nullopt, out);
  return out;
}

Tensor& LogspaceOut(const at::Scalar& start, const at::Scalar& end, int64_t steps, double base, Tensor& out) {
  static const ops::Row& row = ops::RowOf("xpud::logspace");
  TORCH_CHECK(steps >= 0, "number of steps must be non-negative");
  if (!IsOnDevice(out) || !IsSupported(out.scalar_type(), row.dtypes))
    return FallbackOf<at::_ops::logspace_out>::Call(start, end, steps, base, out);
  Range(row, start, end, steps, base, out);
  return out;
}

// ---- flip and roll ----

Tensor Flip(const Tensor& self, c10::IntArrayRef dims) {
  static const ops::Row& row = ops::RowOf("flip");
  if (!IsServed(self, row.dtypes)) return FallbackOf<at::_ops::flip>::Call(self, dims);
  const auto flipped = at::dim_list_to_bitset(dims, self.dim());
  Tensor out = at::empty_like(self, at::MemoryFormat::Preserve);
  if (out.numel() == 0) return out;
  c10::SmallVector<int64_t, ops::kMaxRank> dimensions;
  for (int64_t d = 0; d < self.dim(); ++d)
    if (flipped[static_cast<size_t>(d)]) dimensions.push_back(d);
  Send(row,
       ops::FlipCall<TensorRef>{
           .out = Describe(out), .self = Describe(self), .dims = ops::NumberList(dimensions)},
       self);
  return out;
}

// Two parts change places, as in ATen.
Tensor RollDimension(const Tensor& self, int64_t shift, int64_t dimension) {
  const int64_t dim = at::maybe_wrap_dim(dimension, self.dim()), size = self.size(dim);
  int64_t start = (size - shift) % size;
  if (start < 0) start += size;
  return at::cat({self.narrow(dim, start, size - start), self.narrow(dim, 0, start)}, dim);
}

// Without dimensions, the elements are rolled as one.
Tensor Roll(const Tensor& self, c10::IntArrayRef shifts, c10::IntArrayRef dims) {
  TORCH_CHECK(!shifts.empty(), "`shifts` required");
  const bool flat = dims.empty() && shifts.size() == 1;
  TORCH_CHECK(flat || shifts.size() == dims.size(),
              "shifts and dimensions must align. shifts: ", shifts.size(), ", dims:", dims.size());
  if (self.numel() == 0) return self.clone(at::MemoryFormat::Preserve);
  if (flat) return RollDimension(Contiguous(self).view({self.numel()}), shifts[0], 0).view(self.sizes());
  Tensor rolled = self;
  for (size_t i = 0; i < shifts.size(); ++i) rolled = RollDimension(rolled, shifts[i], dims[i]);
  return rolled;
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
  m.impl("linspace.out", XPUD_FN(LinspaceOut));
  m.impl("logspace.out", XPUD_FN(LogspaceOut));
  m.impl("flip", XPUD_FN(Flip));
  m.impl("roll", XPUD_FN(Roll));
  m.impl("cat", XPUD_FN(Cat));
  m.impl("arange.start_out", XPUD_FN(ArangeOut));
  m.impl("index_select", XPUD_FN(IndexSelect));
  m.impl("gather", XPUD_FN(Gather));
  m.impl("index.Tensor", XPUD_FN(IndexTensor));
  m.impl("masked_select", XPUD_FN(MaskedSelect));
  m.impl("take", XPUD_FN(Take));
  m.impl("repeat_interleave.Tensor", XPUD_FN(RepeatInterleave));
}

}  // namespace
}  // namespace xpud::shim
