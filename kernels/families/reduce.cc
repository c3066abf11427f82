#include "kernels/families/reduce.h"

#include <algorithm>
#include <bit>

#include "kernels/families/planners.h"
#include "kernels/families/row_plan.h"
#include "kernels/families/slices.h"
#include "proto/base/status_macros.h"

namespace xpud::kernels {

namespace {

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

// The largest aligned block of every input that is not spread. Blocks start at multiples of all strides
// except the contiguous one.
int BlockOf(const OpCall& call, const ReduceKey& key, const Layout& kept, const Layout& reduced) {
  int block = 8;
  for (int i = 0; i < static_cast<int>(call.inputs.size()); ++i) {
    if (key.spread[static_cast<size_t>(i)]) continue;
    int64_t together = key.columns ? kept.inner() : 0;
    for (int d = 0; d < kept.rank - (key.columns ? 1 : 0); ++d) {
      if (kept.sizes[static_cast<size_t>(d)] > 1) together |= kept.stride(i, d);
    }
    for (int d = 0; d < reduced.rank - (key.columns ? 0 : 1); ++d) {
      if (reduced.sizes[static_cast<size_t>(d)] > 1) together |= reduced.stride(i, d);
    }
    block = std::min(block, RowBlock(together, {&call.inputs[static_cast<size_t>(i)]}, {}));
  }
  return block;
}

const ops::Number* AttributeOf(const OpCall& call) {
  static const ops::Number none = ops::Number::Integer(0);
  return call.attributes.empty() ? &none : &call.attributes[0];
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
  traits.uses_attribute = row.inputs == 1 && formula.expression.Uses(Variable::kB);
  traits.components = static_cast<int>(formula.state.size());
  return &traits;
}

// GPUs: determines how lanes and groups share the work.
ReducePlanner::Cut ReducePlanner::GpuCutOf(const OpCall& call, ReduceKey& key, const Layout& kept,
                                           const Layout& reduced) const {
  constexpr int64_t kFewGroups = 256, kManyGroups = 512;  // about two and four for each multiprocessor
  constexpr int kMinLanes = 2;                            // log2: they still load 64 bytes of a row
  Cut cut;
  const int64_t n = std::max<int64_t>(reduced.numel(), 1);
  cut.items = kept.numel();
  cut.inner = std::max<int64_t>(reduced.inner(), 1);
  cut.outer = n / cut.inner;
  cut.outer_slice = cut.outer;
  cut.inner_slice = cut.inner;
  const bool nvptx = cache_.target() == Target::kNvptx;
  const int block = nvptx && (key.columns || key.vector) ? BlockOf(call, key, kept, reduced) : 1;
  key.block_log2 = std::countr_zero(static_cast<unsigned>(block));

  int64_t least = 0;  // minimum of reduced elements in a part
  if (key.columns) {
    const int64_t columns = kept.inner(), outer = cut.items / columns;
    const auto groups = [&](int log2) { return outer * CeilDiv(columns, int64_t{block} << log2); };
    int log2 = 5;
    while (log2 > 0 && int64_t{block} << (log2 - 1) >= columns) --log2;
    while (log2 > kMinLanes && groups(log2) < kFewGroups) --log2;
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
  float element = key.vector ? 0.02f : 1.0f;
  for (size_t i = 0; i < key.row->inputs; ++i) {
    if (!key.spread[i]) element += static_cast<float>(ops::SizeOf(key.inputs[i])) / kBytesPerNanosecond;
  }
  const int64_t slice = SliceOf(cut.items * n, element);  // elements of a group
  if (key.columns) {
    const int64_t columns = kept.inner();
    cut.column_slice =
        std::clamp<int64_t>(CeilDiv(slice / n + 1, 64) * 64, 64, std::max<int64_t>(columns, 64));
    cut.groups = cut.items / std::max<int64_t>(columns, 1) * CeilDiv(columns, cut.column_slice);
  } else {
    cut.item_slice = std::clamp<int64_t>(slice / n, 1, cut.items);
    cut.groups = CeilDiv(cut.items, cut.item_slice);
  }
  // If a large tensor gives too few groups, the reduced space is cut into parts. 16 groups are enough for any
  // number of workers.
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

void ReducePlanner::ChooseOrder(const OpCall& call, const Layout& kept, const Layout& reduced,
                                ReduceKey& key) {
  const int inputs = static_cast<int>(call.inputs.size());
  bool columns = kept.inner() > 1;
  for (int o = 0; o < static_cast<int>(call.outputs.size()); ++o) {
    key.outputs[static_cast<size_t>(o)] = call.outputs[static_cast<size_t>(o)].dtype;
    columns &= kept.AccessOf(inputs + o) == Access::kContiguous;
  }
  key.kept = kept.rank;
  key.reduced = reduced.rank;
  const auto fits = [&](const Layout& lanes) {  // neighbours are contiguous or spread
    bool all = lanes.AccessOf(0) == Access::kContiguous;
    for (int i = 1; i < inputs; ++i) all &= lanes.AccessOf(i) != Access::kStrided;
    return all;
  };
  key.columns = columns && fits(kept) && !(reduced.AccessOf(0) == Access::kContiguous && reduced.inner() > 1);
  key.vector = key.columns ? kept.inner() >= 8 : fits(reduced) && reduced.inner() >= 32;
  const Layout& lanes = key.columns ? kept : reduced;
  for (int i = 0; i < inputs; ++i) {
    key.inputs[static_cast<size_t>(i)] = call.inputs[static_cast<size_t>(i)].dtype;
    key.spread[static_cast<size_t>(i)] =
        i > 0 && (key.columns || key.vector) && lanes.AccessOf(i) == Access::kBroadcast;
  }
}

absl::StatusOr<Readiness> ReducePlanner::Plan(const OpCall& call, Workspace workspace, LaunchList& launches) {
  ASSIGN_OR_RETURN(const Traits* const traits, TraitsOf(*call.row));
  const Operand& a = call.inputs[0];
  const Operand& out = call.outputs[0];
  Operand kept_shape = a, reduced_shape = a;
  for (size_t d = 0; d < a.rank; ++d) (out.sizes[d] == a.sizes[d] ? reduced_shape : kept_shape).sizes[d] = 1;

  // In both layouts, a is operand 0: its order of dimensions decides. The other inputs follow.
  Layout kept = Layout::Over(kept_shape), reduced = Layout::Over(reduced_shape);
  for (const Operand& input : call.inputs) {
    kept.AddOperand(input);
    reduced.AddOperand(input);
  }
  for (const Operand& output : call.outputs) kept.AddOperand(output);
  if (kept.numel() == 0) return Readiness::kReady;
  const int64_t count = reduced.numel();
  kept.Collapse(/*may_permute=*/true);
  reduced.Collapse(/*may_permute=*/!traits->uses_position);

  ReduceKey key;
  key.row = call.row;
  key.accumulate = AccumulateFor(call);
  key.attribute = traits->uses_attribute;
  ChooseOrder(call, kept, reduced, key);
  const bool gpu = cache_.target() != Target::kHost;
  const Cut cut = gpu ? GpuCutOf(call, key, kept, reduced) : CutOf(key, kept, reduced);
  key.partial = cut.parts > 1;

  ASSIGN_OR_RETURN(const Kernel* const kernel, cache_.Find(skeleton_, key));
  void* states = nullptr;
  if (key.partial) {
    // Both kernels compile before the first wait.
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
  launch.Reset(kernel, cut.groups, CeilDiv(cut.outer, cut.outer_slice), CeilDiv(cut.inner, cut.inner_slice));
  if (gpu) launch.group_size = {kGpuLanes, 1, 1};
  ReduceArguments<Planned> arguments;
  for (size_t o = 0; o < call.outputs.size(); ++o) arguments.outputs[o] = call.outputs[o].data;
  arguments.states = states;
  for (size_t i = 0; i < call.inputs.size(); ++i) arguments.inputs[i] = call.inputs[i].data;
  arguments.attribute = AttributeOf(call);
  SetSpace(kept, arguments.kept, /*first=*/call.inputs.size());
  for (size_t i = 0; i < call.inputs.size(); ++i)
    arguments.kept.strides[static_cast<size_t>(key.stored()) + i] = kept.strides[i].data();
  SetSpace(reduced, arguments.reduced);
  arguments.count = count;
  arguments.items = cut.items;
  arguments.item_slice = cut.item_slice;
  arguments.column_slice = cut.column_slice;
  arguments.outer_slice = cut.outer_slice;
  arguments.inner_slice = cut.inner_slice;
  arguments.parts = cut.parts;
  PushArguments(key, arguments, launch);
  if (!key.partial) return Readiness::kReady;
  return PlanMerge(call, key, kept, cut, count, states, launches);
}

absl::StatusOr<Readiness> ReducePlanner::PlanMerge(const OpCall& call, ReduceKey key, const Layout& kept,
                                                   const Cut& cut, int64_t count, void* states,
                                                   LaunchList& launches) {
  key.reduced = 1;
  key.columns = key.vector = key.partial = false;
  key.block_log2 = key.column_lanes_log2 = 0;
  // For few items, a warp takes each, because a lane would merge many parts serially.
  key.warps = cache_.target() == Target::kNvptx && cut.items < 2048;
  ASSIGN_OR_RETURN(const Kernel* const kernel, cache_.Find(merge_, key));
  if (kernel == nullptr) return Readiness::kCompiling;
  Launch& launch = launches.Add();
  const bool gpu = cache_.target() != Target::kHost;
  const int64_t slice = key.warps ? 1 : gpu ? kGpuLanes : SliceOf(cut.items, static_cast<float>(cut.parts));
  launch.Reset(kernel, CeilDiv(cut.items, key.warps ? kGpuWarps : slice));
  if (gpu) launch.group_size = {kGpuLanes, 1, 1};
  ReduceMergeArguments<Planned> arguments;
  for (size_t o = 0; o < call.outputs.size(); ++o) arguments.outputs[o] = call.outputs[o].data;
  arguments.states = states;
  arguments.attribute = AttributeOf(call);
  SetSpace(kept, arguments.kept, /*first=*/call.inputs.size());
  arguments.count = count;
  arguments.items = cut.items;
  arguments.item_slice = slice;
  arguments.parts = cut.parts;
  PushArguments(key, arguments, launch);
  return Readiness::kReady;
}

constinit const PlannerFactory kReducePlanner = MakePlanner<ReducePlanner>;
constinit const PlannerFactory kJointReducePlanner = MakePlanner<ReducePlanner>;

}  // namespace xpud::kernels
