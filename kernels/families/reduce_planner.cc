#include "kernels/families/reduce_planner.h"

#include <algorithm>
#include <bit>

#include "kernels/families/immediate.h"
#include "kernels/families/row_plan.h"
#include "kernels/families/skeleton_number.h"
#include "kernels/families/slices.h"
#include "proto/base/status_macros.h"

namespace xpud::kernels {
namespace {

using ops::DType;
using ops::TypeRule;

Scalar AccumulateFor(const OpCall& call) {
  switch (call.row->types) {
    case TypeRule::kSum:
      return AccumulateOf(call.outputs[0].dtype);
    case TypeRule::kBool:
    case TypeRule::kIndex:
    case TypeRule::kValueIndex:
      return AccumulateOf(call.inputs[0].dtype);
    default:
      return AccumulateOf(call.compute);
  }
}

// The type as which an immediate of the accumulate type is passed.
DType TypeFor(Scalar accumulate) {
  if (accumulate == Scalar::kF32) return DType::kFloat32;
  return accumulate == Scalar::kF64 ? DType::kFloat64 : DType::kInt64;
}

}  // namespace

absl::StatusOr<const ReducePlanner::Traits*> ReducePlanner::TraitsOf(const ops::Row& row) {
  if (traits_.size() <= row.number) traits_.resize(row.number + 1u);
  Traits& traits = traits_[row.number];
  if (traits.known) [[likely]]
    return &traits;
  ASSIGN_OR_RETURN(const ReduceFormula formula, ParseReduce(row.formula));
  traits.known = true;
  traits.uses_position = formula.expression.Uses(Variable::kPosition);
  traits.uses_attribute = formula.expression.Uses(Variable::kB);
  traits.components = static_cast<int>(formula.state.size());
  return &traits;
}

// GPUs: how lanes and groups share the work.
ReducePlanner::Cut ReducePlanner::GpuCutOf(const Operand& a, ReduceKey& key, const Layout& kept,
                                           const Layout& reduced) const {
  constexpr int64_t kFewGroups = 256, kManyGroups = 512;  // about two and four a multiprocessor
  constexpr int kFewestLanes = 2;                         // log2: they still load 64 bytes of a row
  Cut cut;
  const int64_t n = std::max<int64_t>(reduced.numel(), 1);
  cut.items = kept.numel();
  cut.inner = std::max<int64_t>(reduced.inner(), 1);
  cut.outer = n / cut.inner;
  cut.outer_slice = cut.outer;
  cut.inner_slice = cut.inner;
  const bool nvptx = cache_.target() == Target::kNvptx;
  // Blocks start at multiples of all strides but the contiguous one.
  int64_t together = key.columns ? kept.inner() : 0;
  for (int d = 0; d < kept.rank - (key.columns ? 1 : 0); ++d) {
    if (kept.sizes[static_cast<size_t>(d)] > 1) together |= kept.stride(0, d);
  }
  for (int d = 0; d < reduced.rank - (key.columns ? 0 : 1); ++d) {
    if (reduced.sizes[static_cast<size_t>(d)] > 1) together |= reduced.stride(0, d);
  }
  const int block = nvptx && (key.columns || key.vector) ? RowBlock(together, {&a}, {}) : 1;
  key.block_log2 = std::countr_zero(static_cast<unsigned>(block));

  int64_t least = 0;  // of the reduced elements in a part
  if (key.columns) {
    const int64_t columns = kept.inner(), outer = cut.items / columns;
    const auto groups = [&](int log2) { return outer * CeilDiv(columns, int64_t{block} << log2); };
    int log2 = 5;
    while (log2 > 0 && int64_t{block} << (log2 - 1) >= columns) --log2;
    while (log2 > kFewestLanes && groups(log2) < kFewGroups) --log2;
    key.column_lanes_log2 = log2;
    cut.column_slice = int64_t{block} << log2;
    cut.groups = groups(log2);
    least = 32 * (kGpuLanes >> log2);
  } else {
    key.warps = nvptx && n <= 1024 && (n <= 512 || cut.items >= 2048);
    cut.item_slice = 1;
    cut.groups = CeilDiv(cut.items, key.warps ? kGpuWarps : 1);
    least = 8192;
  }
  if (cut.groups >= kFewGroups || n < 2 * least) return cut;
  const int64_t parts = std::min(CeilDiv(kManyGroups, cut.groups), n / least);
  if (cut.outer >= parts) {
    cut.outer_slice = CeilDiv(cut.outer, parts);
  } else if (cut.outer == 1) {
    cut.inner_slice = CeilDiv(CeilDiv(cut.inner, parts), 64) * 64;
  }
  cut.parts = CeilDiv(cut.outer, cut.outer_slice) * CeilDiv(cut.inner, cut.inner_slice);
  return cut;
}

ReducePlanner::Cut ReducePlanner::CutOf(const ReduceKey& key, const Layout& kept,
                                        const Layout& reduced) const {
  Cut cut;
  const int64_t n = std::max<int64_t>(reduced.numel(), 1);
  cut.items = kept.numel();
  cut.inner = std::max<int64_t>(reduced.inner(), 1);
  cut.outer = n / cut.inner;
  cut.outer_slice = cut.outer;
  cut.inner_slice = cut.inner;
  const float element =
      static_cast<float>(ops::SizeOf(key.input)) / kBytesPerNanosecond + (key.vector ? 0.02f : 1.0f);
  const int64_t slice = SliceOf(cut.items * n, element);  // elements a group
  if (key.columns) {
    const int64_t columns = kept.inner();
    cut.column_slice =
        std::clamp<int64_t>(CeilDiv(slice / n + 1, 64) * 64, 64, std::max<int64_t>(columns, 64));
    cut.groups = cut.items / std::max<int64_t>(columns, 1) * CeilDiv(columns, cut.column_slice);
  } else {
    cut.item_slice = std::clamp<int64_t>(slice / n, 1, cut.items);
    cut.groups = CeilDiv(cut.items, cut.item_slice);
  }
  // Too few groups for a large tensor: parts of the reduced space. 16 groups feed any number of workers well
  // enough.
  const int64_t wanted = std::min<int64_t>(16, cut.items * n / slice);
  if (cut.groups >= wanted || n < 4096) return cut;
  const int64_t parts = std::min(CeilDiv(wanted, cut.groups), n / 2048);
  if (cut.outer >= parts) {
    cut.outer_slice = CeilDiv(cut.outer, parts);
  } else if (cut.outer == 1) {
    cut.inner_slice = CeilDiv(CeilDiv(cut.inner, parts), 64) * 64;
  }
  cut.parts = CeilDiv(cut.outer, cut.outer_slice) * CeilDiv(cut.inner, cut.inner_slice);
  return cut;
}

absl::StatusOr<Readiness> ReducePlanner::Plan(const OpCall& call, Workspace workspace, LaunchList& launches) {
  ASSIGN_OR_RETURN(const Traits* const traits, TraitsOf(*call.row));
  const Operand& a = call.inputs[0];
  const Operand& out = call.outputs[0];
  Operand kept_shape = a, reduced_shape = a;
  for (size_t d = 0; d < a.rank; ++d) (out.sizes[d] == a.sizes[d] ? reduced_shape : kept_shape).sizes[d] = 1;

  // In both layouts a is operand 0: its order of dimensions decides.
  Layout kept = Layout::Over(kept_shape), reduced = Layout::Over(reduced_shape);
  kept.AddOperand(a);
  for (const Operand& output : call.outputs) kept.AddOperand(output);
  reduced.AddOperand(a);
  if (kept.numel() == 0) return Readiness::kReady;
  const int64_t count = reduced.numel();
  kept.Collapse(/*may_permute=*/true);
  reduced.Collapse(/*may_permute=*/!traits->uses_position);

  ReduceKey key;
  key.row = call.row;
  key.accumulate = AccumulateFor(call);
  key.input = a.dtype;
  bool contiguous_out = true;
  for (size_t o = 0; o < call.outputs.size(); ++o) {
    key.outputs[o] = call.outputs[o].dtype;
    contiguous_out &= kept.AccessOf(static_cast<int>(o) + 1) == Access::kContiguous;
  }
  key.kept = kept.rank;
  key.reduced = reduced.rank;
  key.attribute = traits->uses_attribute;
  key.columns = kept.inner() > 1 && kept.AccessOf(0) == Access::kContiguous && contiguous_out &&
                !(reduced.AccessOf(0) == Access::kContiguous && reduced.inner() > 1);
  key.vector =
      key.columns ? kept.inner() >= 8 : reduced.AccessOf(0) == Access::kContiguous && reduced.inner() >= 32;
  const bool gpu = cache_.target() != Target::kHost;
  const Cut cut = gpu ? GpuCutOf(a, key, kept, reduced) : CutOf(key, kept, reduced);
  key.partial = cut.parts > 1;

  ASSIGN_OR_RETURN(const Kernel* const kernel, cache_.Find(skeleton_, key.Pack()));
  void* states = nullptr;
  if (key.partial) {
    // Both kernels compile before either is waited for.
    ReduceKey merge_key = key;
    ASSIGN_OR_RETURN(const Readiness merging,
                     PlanMerge(call, merge_key, kept, cut, count, nullptr, launches));
    launches.Clear();
    if (merging == Readiness::kCompiling || kernel == nullptr) return Readiness::kCompiling;
    const size_t bytes = static_cast<size_t>(traits->components) *
                         static_cast<size_t>(cut.parts * cut.items) * kComponentBytes;
    ASSIGN_OR_RETURN(states, workspace(bytes));
  }
  if (kernel == nullptr) return Readiness::kCompiling;

  Launch& launch = launches.Add();
  launch.Reset(kernel, static_cast<uint32_t>(cut.groups),
               static_cast<uint32_t>(CeilDiv(cut.outer, cut.outer_slice)),
               static_cast<uint32_t>(CeilDiv(cut.inner, cut.inner_slice)));
  if (gpu) launch.group_size = {kGpuLanes, 1, 1};
  if (key.partial) {
    launch.Push(states);
  } else {
    for (const Operand& output : call.outputs) launch.Push(output.data);
  }
  launch.Push(a.data);
  if (key.attribute) {
    const ops::Number attribute = call.attributes.empty() ? ops::Number::Integer(0) : call.attributes[0];
    PushImmediate(attribute, TypeFor(key.accumulate), launch);
  }
  for (int d = 0; d < kept.rank; ++d) launch.Push(kept.sizes[static_cast<size_t>(d)]);
  for (int o = 1; o < kept.operands && !key.partial; ++o) {
    for (int d = 0; d < kept.rank; ++d) launch.Push(kept.stride(o, d));
  }
  for (int d = 0; d < kept.rank; ++d) launch.Push(kept.stride(0, d));
  for (int d = 0; d < reduced.rank; ++d) launch.Push(reduced.sizes[static_cast<size_t>(d)]);
  for (int d = 0; d < reduced.rank; ++d) launch.Push(reduced.stride(0, d));
  for (const int64_t scalar :
       {count, cut.items, cut.item_slice, cut.column_slice, cut.outer_slice, cut.inner_slice, cut.parts}) {
    launch.Push(scalar);
  }
  if (!key.partial) return Readiness::kReady;
  return PlanMerge(call, key, kept, cut, count, states, launches);
}

absl::StatusOr<Readiness> ReducePlanner::PlanMerge(const OpCall& call, ReduceKey key, const Layout& kept,
                                                   const Cut& cut, int64_t count, void* states,
                                                   LaunchList& launches) {
  key.reduced = 1;
  key.columns = key.vector = key.partial = false;
  key.block_log2 = key.column_lanes_log2 = 0;
  // Few items: a warp for each, since a lane would merge many parts one after the other.
  key.warps = cache_.target() == Target::kNvptx && cut.items < 2048;
  KernelKey packed = key.Pack();
  packed.words[0] = (packed.words[0] & ~uint64_t{0xff}) | static_cast<uint64_t>(SkeletonNumber::kReduceMerge);
  ASSIGN_OR_RETURN(const Kernel* const kernel, cache_.Find(merge_, packed));
  if (kernel == nullptr) return Readiness::kCompiling;
  Launch& launch = launches.Add();
  const bool gpu = cache_.target() != Target::kHost;
  const int64_t slice = key.warps ? 1 : gpu ? kGpuLanes : SliceOf(cut.items, static_cast<float>(cut.parts));
  launch.Reset(kernel, static_cast<uint32_t>(CeilDiv(cut.items, key.warps ? kGpuWarps : slice)));
  if (gpu) launch.group_size = {kGpuLanes, 1, 1};
  for (const Operand& output : call.outputs) launch.Push(output.data);
  launch.Push(states);
  if (key.attribute) {
    const ops::Number attribute = call.attributes.empty() ? ops::Number::Integer(0) : call.attributes[0];
    PushImmediate(attribute, TypeFor(key.accumulate), launch);
  }
  for (int d = 0; d < kept.rank; ++d) launch.Push(kept.sizes[static_cast<size_t>(d)]);
  for (int o = 1; o < kept.operands; ++o) {
    for (int d = 0; d < kept.rank; ++d) launch.Push(kept.stride(o, d));
  }
  for (const int64_t scalar : {count, cut.items, slice, cut.parts}) launch.Push(scalar);
  return Readiness::kReady;
}

}  // namespace xpud::kernels
