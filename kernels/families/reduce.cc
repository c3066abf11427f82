#include "kernels/families/reduce.h"

#include <algorithm>
#include <bit>

#include "kernels/families/cascade.h"
#include "kernels/families/monoid_emission.h"
#include "kernels/families/row_plan.h"
#include "kernels/families/slices.h"
#include "proto/base/status_macros.h"

namespace xpud::kernels {

// ---- planning

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

// ---- emission

namespace {

using Value = llvm::Value*;
using Values = std::vector<llvm::Value*>;
using State = MonoidEmission::State;

// Binds a kernel's attribute, if its key has one, and count.
template <typename Arguments>
void Bind(const ReduceKey& key, const Arguments& arguments, Emitter& e, MonoidEmission& monoid) {
  const Scalar passed = IsFloat(key.accumulate) ? key.accumulate : Scalar::kI64;
  monoid.Bind(key.attribute ? e.Convert(arguments.attribute, passed, key.accumulate) : nullptr,
              arguments.count);
}

// Returns component `c` of the states in the workspace. Layout [component][part][item], with room for 8 bytes
// in each place.
template <typename Arguments>
Value StatesOf(Emitter& e, const Arguments& arguments, size_t c) {
  Value const before = e.Mul(e.I64(static_cast<int64_t>(c)), e.Mul(arguments.parts, arguments.items));
  return e.Address(ops::DType::kInt64, arguments.states, before);
}

class ReduceEmission {
 public:
  ReduceEmission(const ReduceKey& key, const ReduceArguments<Emitted>& arguments,
                 const ReduceFormula& formula, Emitter& emitter)
      : key_(key),
        args_(arguments),
        e_(emitter),
        monoid_(emitter, formula, key.accumulate),
        width_(emitter.gpu() || !key.vector     ? 1
               : key.accumulate == Scalar::kF32 ? 16
                                                : 8),
        unroll_(width_ == 1                 ? 1
                : monoid_.components() == 1 ? 4
                : monoid_.components() == 2 ? 1
                                            : 2) {
    Bind(key, arguments, emitter, monoid_);
  }

  absl::Status Run() {
    if (key_.warps) e_.UseWarps();
    if (key_.columns && e_.gpu()) {
      EmitGpuColumns();
    } else if (key_.columns) {
      EmitColumns();
    } else {
      EmitRows();
    }
    return monoid_.status();
  }

 private:
  Value KeptSize(int d) const { return args_.kept.sizes[static_cast<size_t>(d)]; }
  Value ReducedSize(int d) const { return args_.reduced.sizes[static_cast<size_t>(d)]; }
  size_t inputs() const { return key_.row->inputs; }
  Value InnerStride(size_t input) const {
    return args_.reduced.strides[input][static_cast<size_t>(key_.reduced - 1)];
  }
  Value InnerSize() const { return ReducedSize(key_.reduced - 1); }
  Value Outer() const {
    Value outer = e_.I64(1);
    for (int d = 0; d < key_.reduced - 1; ++d) outer = e_.Mul(outer, ReducedSize(d));
    return outer;
  }
  Value Part() {
    return e_.Add(e_.Mul(e_.Group(1), e_.CeilDiv(InnerSize(), args_.inner_slice)), e_.Group(2));
  }

  // Offsets at a kept item.
  struct Place {
    Values outputs, inputs;
  };
  // Returns the place of item `item` over the first `dims` kept dimensions.
  Place PlaceOf(Value item, int dims) {
    const auto stored = static_cast<ptrdiff_t>(key_.stored());
    const Values all = OffsetsOf(e_, args_.kept, item, dims, static_cast<size_t>(stored) + inputs());
    return {Values(all.begin(), all.begin() + stored), Values(all.begin() + stored, all.end())};
  }
  // Returns the inputs' offsets at the outer reduced index `outer`, after `bases`.
  Values RowsAt(const Values& bases, Value outer) {
    return Sums(bases, OffsetsOf(e_, args_.reduced, outer, key_.reduced - 1, inputs()));
  }
  // Returns the offsets at element `j` of the innermost reduced dimension. Rows: j is the first lane's.
  Values ElementsAt(const Values& rows, Value j) {
    Values offsets = rows;
    for (size_t i = 0; i < inputs(); ++i) {
      const bool lanes = !key_.columns && key_.vector;
      if (!(lanes && key_.spread[i])) offsets[i] = e_.Add(rows[i], lanes ? j : e_.Mul(j, InnerStride(i)));
    }
    return offsets;
  }
  // Returns the offsets `lanes` columns further.
  Values ColumnsAt(const Values& offsets, Value lanes) {
    Values moved = offsets;
    for (size_t i = 0; i < inputs(); ++i)
      if (!key_.spread[i]) moved[i] = e_.Add(offsets[i], lanes);
    return moved;
  }
  Values Sums(const Values& a, const Values& b) {
    Values sums;
    for (size_t i = 0; i < a.size(); ++i) sums.push_back(e_.Add(a[i], b[i]));
    return sums;
  }
  // Loads the inputs' elements of `width` lanes.
  Values Load(const Values& offsets, int width) {
    Values elements;
    for (size_t i = 0; i < inputs(); ++i) {
      const bool spread = width > 1 && key_.spread[i];
      Value const element =
          e_.Load(key_.inputs[i], args_.inputs[i], offsets[i], key_.accumulate, spread ? 1 : width);
      elements.push_back(spread ? e_.ir().CreateVectorSplat(static_cast<unsigned>(width), element) : element);
    }
    return elements;
  }
  // GPUs: loads blocks of the inputs' elements, by element and then by input.
  std::vector<Values> LoadBlocks(const Values& offsets) {
    std::vector<Values> elements(static_cast<size_t>(Block()));
    for (size_t i = 0; i < inputs(); ++i) {
      const Values loaded =
          key_.spread[i]
              ? Values(elements.size(), e_.Load(key_.inputs[i], args_.inputs[i], offsets[i], key_.accumulate))
              : e_.LoadBlock(key_.inputs[i], args_.inputs[i], offsets[i], key_.accumulate,
                             static_cast<int>(Block()));
      for (size_t b = 0; b < elements.size(); ++b) elements[b].push_back(loaded[b]);
    }
    return elements;
  }

  Value Position(Value first, int width) {
    if (width == 1) return first;
    std::vector<llvm::Constant*> lanes;
    for (int l = 0; l < width; ++l) lanes.push_back(e_.ir().getInt64(static_cast<uint64_t>(l)));
    return e_.ir().CreateAdd(e_.ir().CreateVectorSplat(static_cast<unsigned>(width), first),
                             llvm::ConstantVector::get(lanes));
  }

  // ---- the reduced space

  // How one lane walks through the group's part of the reduced space.
  struct Walk {
    int64_t inner_stride = 1;  // elements that a step takes from the innermost dimension
    int width = 1;             // of a vector, after whole steps; single elements follow
    Value outer_first = nullptr;
    int64_t outer_stride = 1;
  };
  using Stretch = std::function<Values(Value outer, Value from, Value to, const Values& now)>;

  // Folds the group's part of the reduced space. run(outer, from, to, states) takes elements [from, to) of
  // the innermost dimension at outer index `outer` into `states`, which begin as `start`. Chains of them are
  // short: each ends with finish(states), and `merge` joins the results. `empty` is the result of no
  // elements.
  Values FoldSpace(const Walk& walk, const Values& start, const Stretch& run,
                   const std::function<Values(const Values&)>& finish, const Values& empty,
                   const std::function<Values(const Values&, const Values&)>& merge) {
    Value const begin = e_.Mul(e_.Group(2), args_.inner_slice);
    Value const end = e_.Min(e_.Add(begin, args_.inner_slice), InnerSize());
    Value const steps = e_.I64(kChain * walk.inner_stride);
    Cascade cascade(e_, empty, merge);
    // Integers do not round.
    const auto fold = [&](Value from, Value to, Value block, const auto& body) {
      return IsFloat(key_.accumulate) ? cascade.Fold(from, to, block, body) : body(from, to);
    };
    if (key_.reduced == 1) {
      return fold(begin, end, steps,
                  [&](Value from, Value to) { return finish(run(e_.I64(0), from, to, start)); });
    }
    Value const outer_begin = e_.Mul(e_.Group(1), args_.outer_slice);
    Value const outer_end = e_.Min(e_.Add(outer_begin, args_.outer_slice), Outer());
    Value const block = OuterBlock(walk, e_.ir().CreateSub(end, begin));
    return fold(outer_begin, outer_end, block, [&](Value outer_from, Value outer_to) {
      return fold(begin, end, steps, [&](Value from, Value to) {
        Value const first = walk.outer_first == nullptr ? outer_from : e_.Add(outer_from, walk.outer_first);
        return finish(e_.Loop(first, outer_to, e_.I64(walk.outer_stride), start,
                              [&](Value outer, const Values& now) { return run(outer, from, to, now); }));
      });
    });
  }

  // Returns how many outer indices fit into a chain, at `length` elements each.
  Value OuterBlock(const Walk& walk, Value length) {
    Value steps = e_.CeilDiv(length, e_.I64(walk.inner_stride));
    if (walk.width > 1) {
      const auto rest = [&](Value x, int64_t y) { return e_.ir().CreateURem(x, e_.I64(y)); };
      Value const whole = e_.ir().CreateUDiv(length, e_.I64(walk.inner_stride));
      Value const vectors = e_.ir().CreateUDiv(rest(length, walk.inner_stride), e_.I64(walk.width));
      steps = e_.Add(e_.Add(whole, vectors), rest(length, walk.width));
    }
    Value const indices = e_.CeilDiv(e_.I64(kChain), e_.ir().CreateSelect(IsZero(steps), e_.I64(1), steps));
    return e_.Mul(indices, e_.I64(walk.outer_stride));
  }
  Value IsZero(Value x) { return e_.ir().CreateICmpEQ(x, e_.I64(0)); }

  // Merges lists of states, each of `width` lanes.
  Values MergeAll(const Values& x, const Values& y, int width) {
    Values merged;
    for (size_t i = 0; i < x.size() / monoid_.components(); ++i)
      Append(merged, monoid_.Merge(Slice(x, i), Slice(y, i), width));
    return merged;
  }

  // ---- rows

  void EmitRows() {
    Value const begin = e_.Mul(e_.Team(), args_.item_slice);
    Value const end = e_.Min(e_.Add(begin, args_.item_slice), args_.items);
    e_.Loop(begin, end, e_.I64(1), [&](Value item) {
      const Place place = PlaceOf(item, key_.kept);
      if (e_.gpu()) {
        const State state = monoid_.MergeGroup(ReduceGpuRow(place.inputs));
        e_.If(e_.ir().CreateICmpEQ(e_.Lane(), e_.I64(0)),
              [&] { StoreResult(state, place.outputs, item, 1); });
      } else {
        StoreResult(ReduceRow(place.inputs), place.outputs, item, 1);
      }
    });
  }

  // ---- GPU: lanes take blocks round robin. Each element of a block has a state; these are merged at the
  // end.

  int64_t Block() const { return int64_t{1} << key_.block_log2; }

  struct GpuLoad {  // of a block's first element
    Values offsets;
    Value position;
  };
  // Loads all blocks before the first is used, and steps the states through them. `step` is the distance of
  // positions within a block (columns: 0).
  Values StepBlocks(const std::vector<GpuLoad>& loads, int64_t step, const Values& current) {
    std::vector<std::vector<Values>> blocks;
    for (const GpuLoad& load : loads) blocks.push_back(LoadBlocks(load.offsets));
    Values states = current;
    for (size_t b = 0; b < blocks.size(); ++b) {
      Values next;
      for (size_t i = 0; i < blocks[b].size(); ++i) {
        Value const position = e_.Add(loads[b].position, e_.I64(static_cast<int64_t>(i) * step));
        Append(next, monoid_.Step(Slice(states, i), blocks[b][i], position, 1));
      }
      states = next;
    }
    return states;
  }

  Values InitialBlock() {
    Values states;
    for (int64_t i = 0; i < Block(); ++i) Append(states, monoid_.Init(1));
    return states;
  }

  State ReduceGpuRow(const Values& bases) {
    const int64_t stride = (e_.warps() ? kWarpLanes : kGpuLanes) * Block();
    const auto run = [&](Value outer, Value from, Value to, const Values& now) {
      const Values row = RowsAt(bases, outer);
      Value const first = e_.Mul(outer, InnerSize());
      const auto load = [&](Value j) { return GpuLoad{ElementsAt(row, j), e_.Add(first, j)}; };
      Values after = e_.LoopUnrolled(e_.Add(from, e_.Mul(e_.Lane(), e_.I64(Block()))), to, stride, Block(),
                                     kRowUnroll, now, [&](const Values& indices, const Values& current) {
                                       std::vector<GpuLoad> loads;
                                       for (Value j : indices) loads.push_back(load(j));
                                       return StepBlocks(loads, 1, current);
                                     });
      if (Block() == 1) return after;
      // The elements after the last whole block.
      Value const whole = e_.ir().CreateAnd(e_.ir().CreateSub(to, from), e_.I64(-Block()));
      const Values rest = e_.Loop(e_.Add(e_.Add(from, whole), e_.Lane()), to, e_.Lanes(), Slice(after, 0),
                                  [&](Value j, const Values& current) {
                                    const GpuLoad at = load(j);
                                    return monoid_.Step(current, Load(at.offsets, 1), at.position, 1);
                                  });
      std::copy(rest.begin(), rest.end(), after.begin());
      return after;
    };
    const auto finish = [&](const Values& states) {
      State merged = Slice(states, 0);
      for (int64_t i = 1; i < Block(); ++i)
        merged = monoid_.Merge(merged, Slice(states, static_cast<size_t>(i)), 1);
      return merged;
    };
    return FoldSpace({.inner_stride = stride}, InitialBlock(), run, finish, monoid_.Init(1),
                     [&](const State& x, const State& y) { return monoid_.Merge(x, y, 1); });
  }

  // Group x is (outer kept item, slice of columns). `lanes` neighbouring lanes form a strand; the strands
  // take rows round robin.
  void EmitGpuColumns() {
    const int inner = key_.kept - 1;
    const int64_t lanes = int64_t{1} << key_.column_lanes_log2, strands = int64_t{kGpuLanes} / lanes;
    const int64_t columns = lanes * Block();
    Value const slices = e_.CeilDiv(KeptSize(inner), args_.column_slice);
    Value const item = e_.ir().CreateUDiv(e_.Group(0), slices);
    Value const begin = e_.Mul(e_.ir().CreateURem(e_.Group(0), slices), args_.column_slice);
    const Place place = PlaceOf(item, inner);
    Value const beside = e_.ir().CreateAnd(e_.Lane(), e_.I64(lanes - 1));
    Value const strand = e_.ir().CreateLShr(e_.Lane(), e_.I64(key_.column_lanes_log2));
    // A lane beyond the last column repeats the work of the last ones.
    Value const column = e_.Min(e_.Add(begin, e_.Mul(beside, e_.I64(Block()))),
                                e_.ir().CreateSub(KeptSize(inner), e_.I64(Block())));
    const Values states = ReduceGpuColumns(ColumnsAt(place.inputs, column), strand, strands);
    const State merged = MergeStrands(states, strand, beside, strands, columns);
    Value const own = e_.Add(begin, e_.Lane());
    Value const ours = e_.ir().CreateAnd(e_.ir().CreateICmpSLT(e_.Lane(), e_.I64(columns)),
                                         e_.ir().CreateICmpSLT(own, KeptSize(inner)));
    e_.If(ours, [&] {
      Values here = place.outputs;
      for (Value& offset : here) offset = e_.Add(offset, own);
      StoreResult(merged, here, e_.Add(e_.Mul(item, KeptSize(inner)), own), 1);
    });
  }

  // With one reduced dimension the strands share its rows; with several they share the outer ones.
  Values ReduceGpuColumns(const Values& bases, Value strand, int64_t strands) {
    const bool one = key_.reduced == 1;
    const auto run = [&](Value outer, Value from, Value to, const Values& now) {
      const Values row = RowsAt(bases, outer);
      Value const first = e_.Mul(outer, InnerSize());
      return e_.LoopUnrolled(one ? e_.Add(from, strand) : from, to, one ? strands : 1, 1, kColumnUnroll, now,
                             [&](const Values& indices, const Values& current) {
                               std::vector<GpuLoad> loads;
                               for (Value j : indices)
                                 loads.push_back({ElementsAt(row, j), e_.Add(first, j)});
                               return StepBlocks(loads, 0, current);
                             });
    };
    Walk walk;
    if (one) {
      walk.inner_stride = strands;
    } else {
      walk.outer_first = strand;
      walk.outer_stride = strands;
    }
    return FoldSpace(
        walk, InitialBlock(), run, [](const Values& states) { return states; }, InitialBlock(),
        [&](const Values& x, const Values& y) { return MergeAll(x, y, 1); });
  }

  // Merges all strands' states through shared memory. Lane l gets the state of column l.
  State MergeStrands(const Values& states, Value strand, Value beside, int64_t strands, int64_t columns) {
    const size_t components = monoid_.components();
    Values shared;
    for (size_t c = 0; c < components; ++c)
      shared.push_back(e_.Shared(e_.TypeOf(monoid_.TypeOf(c)), static_cast<uint64_t>(strands * columns)));
    const auto load = [&](Value at) {
      State state;
      for (size_t c = 0; c < components; ++c)
        state.push_back(e_.LoadRaw(e_.TypeOf(monoid_.TypeOf(c)), shared[c], at));
      return state;
    };
    const auto store = [&](Value at, const State& state) {
      for (size_t c = 0; c < components; ++c) e_.StoreRaw(shared[c], at, state[c]);
    };
    Value const mine = e_.Add(e_.Mul(strand, e_.I64(columns)), e_.Mul(beside, e_.I64(Block())));
    for (int64_t i = 0; i < Block(); ++i)
      store(e_.Add(mine, e_.I64(i)), Slice(states, static_cast<size_t>(i)));
    for (int64_t half = strands / 2; half > 0; half /= 2) {
      e_.Barrier();
      const int64_t pairs = half * columns;
      for (int64_t k = 0; k < pairs; k += kGpuLanes) {
        Value const at = e_.Add(e_.Lane(), e_.I64(k));
        e_.If(e_.ir().CreateICmpSLT(at, e_.I64(pairs)),
              [&] { store(at, monoid_.Merge(load(at), load(e_.Add(at, e_.I64(pairs))), 1)); });
      }
    }
    e_.Barrier();
    return load(e_.Min(e_.Lane(), e_.I64(columns - 1)));
  }

  State ReduceRow(const Values& bases) {
    const size_t components = monoid_.components();
    Values empty;
    for (int u = 0; u < unroll_ && width_ > 1; ++u) Append(empty, monoid_.Init(width_));
    Append(empty, monoid_.Init(1));
    const auto tail_of = [&](const Values& states) { return Slice(states, states.size() / components - 1); };
    const auto merge = [&](const Values& x, const Values& y) {
      Values merged;
      for (size_t u = 0; u + 1 < x.size() / components; ++u)
        Append(merged, monoid_.Merge(Slice(x, u), Slice(y, u), width_));
      Append(merged, monoid_.Merge(tail_of(x), tail_of(y), 1));
      return merged;
    };
    Values states = FoldSpace(
        {.inner_stride = width_ == 1 ? 1 : int64_t{width_} * unroll_, .width = width_}, empty,
        [&](Value outer, Value from, Value to, const Values& now) {
          return ReduceInner(RowsAt(bases, outer), e_.Mul(outer, InnerSize()), from, to, now);
        },
        [](const Values& all) { return all; }, empty, merge);
    const size_t vectors = states.size() / components - 1;
    if (vectors == 0) return states;
    State lanes = Slice(states, 0);
    for (size_t u = 1; u < vectors; ++u) lanes = monoid_.Merge(lanes, Slice(states, u), width_);
    const State all = monoid_.MergeLanes(lanes, width_);
    Value const has_tail = e_.ir().CreateICmpNE(e_.ir().CreateURem(InnerSize(), e_.I64(width_)), e_.I64(0));
    return e_.Where(has_tail, all, [&] { return monoid_.Merge(all, tail_of(states), 1); });
  }

  static void Append(Values& to, const State& from) { to.insert(to.end(), from.begin(), from.end()); }
  State Slice(const Values& carried, size_t index) const {
    const auto first = carried.begin() + static_cast<ptrdiff_t>(index * monoid_.components());
    return {first, first + static_cast<ptrdiff_t>(monoid_.components())};
  }

  // Takes in elements [begin, end) of the innermost reduced dimension. `first` is the position of element 0.
  // `carried`: the states of vectors, and that of the last elements.
  Values ReduceInner(const Values& bases, Value first, Value begin, Value end, Values carried) {
    const size_t components = monoid_.components();
    // All vectors together, and then the first one alone.
    for (int together = unroll_; width_ > 1 && together > 0; together = together == 1 ? 0 : 1) {
      const int64_t stride = int64_t{width_} * together;
      Value const length = e_.ir().CreateSub(end, begin);
      Value const middle = e_.Add(begin, e_.Mul(e_.ir().CreateUDiv(length, e_.I64(stride)), e_.I64(stride)));
      const auto last = carried.begin() + static_cast<ptrdiff_t>(components) * together;
      const Values after = e_.Loop(
          begin, middle, e_.I64(stride), {carried.begin(), last}, [&](Value j, const Values& current) {
            Values next;
            for (int u = 0; u < together; ++u) {
              Value const at = e_.Add(j, e_.I64(int64_t{u} * width_));
              Append(next,
                     monoid_.Step(Slice(current, static_cast<size_t>(u)), Load(ElementsAt(bases, at), width_),
                                  Position(e_.Add(first, at), width_), width_));
            }
            return next;
          });
      std::copy(after.begin(), after.end(), carried.begin());
      begin = middle;
    }
    const auto tail = carried.end() - static_cast<ptrdiff_t>(components);
    const Values after =
        e_.Loop(begin, end, e_.I64(1), {tail, carried.end()}, [&](Value j, const Values& now) {
          return monoid_.Step(now, Load(ElementsAt(bases, j), 1), e_.Add(first, j), 1);
        });
    std::copy(after.begin(), after.end(), tail);
    return carried;
  }

  // ---- columns

  // Group x is (outer kept item, slice of columns).
  void EmitColumns() {
    const int inner = key_.kept - 1;
    Value const slices = e_.CeilDiv(KeptSize(inner), args_.column_slice);
    Value const item = e_.ir().CreateUDiv(e_.Group(0), slices);
    Value begin = e_.Mul(e_.ir().CreateURem(e_.Group(0), slices), args_.column_slice);
    Value const end = e_.Min(e_.Add(begin, args_.column_slice), KeptSize(inner));
    const Place place = PlaceOf(item, inner);
    Value const first = e_.Mul(item, KeptSize(inner));
    for (const int64_t blocks : {int64_t{4}, int64_t{1}}) {
      if (width_ == 1) break;
      const int64_t step = blocks * width_;
      Value const whole = e_.ir().CreateUDiv(e_.ir().CreateSub(end, begin), e_.I64(step));
      Value const middle = e_.Add(begin, e_.Mul(whole, e_.I64(step)));
      e_.Loop(begin, middle, e_.I64(step), [&](Value c) { ReduceColumns(place, c, first, blocks, width_); });
      begin = middle;
    }
    e_.Loop(e_.Add(begin, e_.Lane()), end, e_.Lanes(),
            [&](Value c) { ReduceColumns(place, c, first, 1, 1); });
  }

  // Reduces columns c .. c + blocks * width - 1.
  void ReduceColumns(const Place& place, Value column, Value first, int64_t blocks, int width) {
    const Values bases = ColumnsAt(place.inputs, column);
    Values empty;
    for (int64_t b = 0; b < blocks; ++b) Append(empty, monoid_.Init(width));
    const auto run = [&](Value outer, Value from, Value to, const Values& now) {
      const Values row = RowsAt(bases, outer);
      return e_.Loop(from, to, e_.I64(1), now, [&](Value j, const Values& current) {
        const Values at = ElementsAt(row, j);
        Value position = e_.Add(e_.Mul(outer, InnerSize()), j);
        if (width > 1) position = e_.ir().CreateVectorSplat(static_cast<unsigned>(width), position);
        Values next;
        for (int64_t b = 0; b < blocks; ++b) {
          Append(next, monoid_.Step(Slice(current, static_cast<size_t>(b)),
                                    Load(ColumnsAt(at, e_.I64(b * width)), width), position, width));
        }
        return next;
      });
    };
    const Values states = FoldSpace(
        {}, empty, run, [](const Values& all) { return all; }, empty,
        [&](const Values& x, const Values& y) { return MergeAll(x, y, width); });
    for (int64_t b = 0; b < blocks; ++b) {
      Value const at = e_.Add(column, e_.I64(b * width));
      Values here = place.outputs;
      for (Value& offset : here) offset = e_.Add(offset, at);
      StoreResult(Slice(states, static_cast<size_t>(b)), here, e_.Add(first, at), width);
    }
  }

  // Stores `width` results at output offsets `offsets`, or states from kept item `item` on.
  void StoreResult(const State& state, const Values& offsets, Value item, int width) {
    if (!key_.partial) {
      const std::vector<Typed> results = monoid_.Finish(state, width);
      for (size_t o = 0; o < results.size(); ++o) {
        e_.Store(key_.outputs[o], args_.outputs[o], offsets[o], results[o].value, results[o].scalar, width);
      }
      return;
    }
    for (size_t c = 0; c < state.size(); ++c) {
      Value const at = e_.Add(e_.Mul(Part(), args_.items), item);
      e_.StoreRaw(StatesOf(e_, args_, c), at, state[c]);
    }
  }

  // Blocks in flight at once.
  static constexpr int64_t kRowUnroll = 4, kColumnUnroll = 8;

  const ReduceKey& key_;
  const ReduceArguments<Emitted>& args_;
  Emitter& e_;
  MonoidEmission monoid_;
  const int width_, unroll_;
};

}  // namespace

absl::Status ReduceSkeleton::EmitBody(const ReduceKey& key, const ReduceArguments<Emitted>& arguments,
                                      Emitter& e) const {
  ASSIGN_OR_RETURN(const ReduceFormula formula, ParseReduce(key.row->formula));
  return ReduceEmission(key, arguments, formula, e).Run();
}

absl::Status ReduceMergeSkeleton::EmitBody(const ReduceKey& key,
                                           const ReduceMergeArguments<Emitted>& arguments, Emitter& e) const {
  ASSIGN_OR_RETURN(const ReduceFormula formula, ParseReduce(key.row->formula));
  MonoidEmission monoid(e, formula, key.accumulate);
  Bind(key, arguments, e, monoid);
  Value const items = arguments.items, slice = arguments.item_slice, parts = arguments.parts;
  const auto load = [&](Value item, Value part) {
    State state;
    for (size_t c = 0; c < monoid.components(); ++c) {
      Value const at = e.Add(e.Mul(part, items), item);
      state.push_back(e.LoadRaw(e.TypeOf(monoid.TypeOf(c)), StatesOf(e, arguments, c), at));
    }
    return state;
  };
  if (key.warps) e.UseWarps();
  Value const begin = e.Mul(e.Team(), slice);
  Value const end = e.Min(e.Add(begin, slice), items);
  const auto store = [&](Value item, const State& state) {
    const std::vector<Typed> results = monoid.Finish(state, 1);
    const Values offsets = OffsetsOf(e, arguments.kept, item, key.kept, results.size());
    for (size_t o = 0; o < results.size(); ++o)
      e.Store(key.outputs[o], arguments.outputs[o], offsets[o], results[o].value, results[o].scalar);
  };
  const auto merge = [&](const Values& x, const Values& y) { return monoid.Merge(x, y, 1); };
  if (key.warps) {
    e.Loop(begin, end, e.I64(1), [&](Value item) {
      const State mine = e.Loop(e.Lane(), parts, e.Lanes(), monoid.Init(1),
                                [&](Value part, const Values& now) { return merge(now, load(item, part)); });
      const State state = monoid.MergeGroup(mine);
      e.If(e.ir().CreateICmpEQ(e.Lane(), e.I64(0)), [&] { store(item, state); });
    });
  } else {
    e.Loop(e.Add(begin, e.Lane()), end, e.Lanes(), [&](Value item) {
      Cascade cascade(e, monoid.Init(1), merge);
      store(item, cascade.Fold(e.I64(0), parts, e.I64(kChain), [&](Value from, Value to) {
        return e.Loop(e.Add(from, e.I64(1)), to, e.I64(1), load(item, from),
                      [&](Value part, const Values& now) { return merge(now, load(item, part)); });
      }));
    });
  }
  return monoid.status();
}

}  // namespace xpud::kernels
