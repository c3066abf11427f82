#include "kernels/families/scan.h"

#include <algorithm>

#include "kernels/families/monoid_emission.h"
#include "kernels/families/planners.h"
#include "kernels/families/slices.h"
#include "proto/base/status_macros.h"
#include "proto/ops/families/scan.h"

namespace xpud::kernels {

// ---- planning

namespace {

constexpr int64_t kLaneElements = 4;  // elements of a tile for each GPU lane
constexpr int64_t kTile = kLaneElements * kGpuLanes;
constexpr size_t kComponentBytes = 8;  // of a state in the workspace

// How a scan is divided.
struct Cut {
  int64_t item_slice = 1;  // items of a group; for columns, of the innermost dimension
  int64_t part = 0;        // elements of a part
  int64_t parts = 1;
  int64_t groups = 1;
};

// Each of a GPU's groups has a tile in flight, so a few groups for each multiprocessor are enough.
Cut GpuCut(const ScanKey& key, int64_t items, int64_t n) {
  constexpr int64_t kEnoughGroups = 512, kMaxParts = 256;
  Cut cut;
  cut.part = n;
  cut.groups = key.lanes ? CeilDiv(items, kGpuLanes) : items;
  if (key.lanes || items >= kEnoughGroups || n < 16 * kTile) return cut;
  const int64_t wanted = std::min({kMaxParts, CeilDiv(kEnoughGroups, items), n / (8 * kTile)});
  cut.part = CeilDiv(CeilDiv(n, wanted), kTile) * kTile;
  cut.parts = CeilDiv(n, cut.part);
  return cut;
}

Cut HostCut(const ScanKey& key, const Layout& items, int64_t n) {
  Cut cut;
  cut.part = n;
  const float element = key.columns ? 0.5f : 2.0f;  // nanoseconds
  if (key.columns) {
    const int64_t inner = items.inner();
    cut.item_slice = std::min(SliceOf(inner, element * static_cast<float>(n)), inner);
    cut.groups = items.numel() / inner * CeilDiv(inner, cut.item_slice);
  } else {
    cut.item_slice = SliceOf(items.numel(), element * static_cast<float>(n), /*multiple=*/1);
    cut.groups = CeilDiv(items.numel(), cut.item_slice);
  }
  return cut;
}

// The outputs of a scan are its values, and of an indexed one their positions, too.
struct Operands {
  std::array<const Operand*, 2> outputs{};
  size_t output_count = 1;
  const Operand* self = nullptr;
  int64_t dim = 0;
};

Operands OperandsOf(const OpCall& call) {
  if (call.row->family == ops::Family::kScan) {
    const auto scan = ops::Read<ops::ScanCall>(call);
    return {{scan.out}, 1, scan.self, scan.dim};
  }
  const auto scan = ops::Read<ops::IndexedScanCall>(call);
  return {{scan.values, scan.indices}, 2, scan.self, scan.dim};
}

// As in PyTorch, an f32 result is accumulated in f64 on the host: a running f32 sum would stop growing at
// 2^24. A GPU merges sums of tiles.
Scalar AccumulateFor(const ops::Row& row, const Operands& scan, bool gpu) {
  const ops::DType type = row.types == ops::TypeRule::kSum ? scan.outputs[0]->dtype : scan.self->dtype;
  return type == ops::DType::kFloat32 && !gpu ? Scalar::kF64 : AccumulateOf(type);
}

}  // namespace

absl::StatusOr<Readiness> ScanPlanner::Plan(const OpCall& call, Workspace workspace, LaunchList& launches) {
  const Operands scan = OperandsOf(call);
  const Operand& a = *scan.self;
  const auto dim = static_cast<size_t>(scan.dim);
  const int64_t n = a.rank == 0 ? 1 : a.sizes[dim];
  Operand shape = a;
  if (a.rank > 0) shape.sizes[dim] = 1;
  Layout items = Layout::Over(shape);
  for (size_t o = 0; o < scan.output_count; ++o) items.AddOperand(*scan.outputs[o]);
  items.AddOperand(a);
  if (items.numel() == 0 || n == 0) return Readiness::kReady;
  items.Collapse(/*may_permute=*/true);
  const int inputs_at = static_cast<int>(scan.output_count);

  const bool gpu = cache_.target() != Target::kHost;
  ScanKey key;
  key.row = call.row;
  key.accumulate = AccumulateFor(*call.row, scan, gpu);
  key.input = a.dtype;
  key.output = scan.outputs[0]->dtype;
  key.rank = items.rank;
  key.columns = items.inner() >= 8;
  for (int o = 0; o <= inputs_at; ++o) key.columns &= items.AccessOf(o) == Access::kContiguous;
  key.lanes = gpu && (key.columns || n <= 32);
  const Cut cut = gpu ? GpuCut(key, items.numel(), n) : HostCut(key, items, n);
  key.parts = cut.parts > 1;
  ASSIGN_OR_RETURN(const Kernel* const kernel, cache_.Find(skeleton_, key));
  void* states = nullptr;
  ScanKey totals_key = key;
  totals_key.totals = true;
  totals_key.parts = false;
  const Kernel* totals = nullptr;
  if (key.parts) {
    ASSIGN_OR_RETURN(totals, cache_.Find(skeleton_, totals_key));
    if (kernel == nullptr || totals == nullptr) return Readiness::kCompiling;
    const size_t components = scan.output_count;  // the same number of components and results in every row
    ASSIGN_OR_RETURN(
        states, workspace(components * static_cast<size_t>(cut.parts * items.numel()) * kComponentBytes));
  }
  if (kernel == nullptr) return Readiness::kCompiling;

  ScanArguments<Planned> arguments;
  for (size_t o = 0; o < static_cast<size_t>(key.operands()); ++o) {
    const Operand& operand = o < scan.output_count ? *scan.outputs[o] : a;
    arguments.operands[o] = operand.data;
    arguments.strides[o] = a.rank == 0 ? 0 : operand.strides[dim];
  }
  arguments.states = states;
  SetSpace(items, arguments.items);
  arguments.length = n;
  arguments.count = items.numel();
  arguments.item_slice = cut.item_slice;
  arguments.part = cut.part;
  arguments.parts = cut.parts;
  const auto add = [&](const Kernel* with, const ScanKey& with_key) {
    Launch& launch = launches.Add();
    launch.Reset(with, cut.groups, cut.parts);
    if (gpu) launch.group_size = {kGpuLanes, 1, 1};
    PushArguments(with_key, arguments, launch);
  };
  if (totals != nullptr) add(totals, totals_key);
  add(kernel, key);
  return Readiness::kReady;
}

// ---- emission

namespace {

using Value = llvm::Value*;
using Values = std::vector<llvm::Value*>;
using State = MonoidEmission::State;

class ScanEmission {
 public:
  ScanEmission(const ScanKey& key, const ScanArguments<Emitted>& arguments, const ReduceFormula& formula,
               Emitter& emitter)
      : key_(key), args_(arguments), e_(emitter), monoid_(emitter, formula, key.accumulate) {}

  absl::Status Run() {
    if (key_.lanes) {
      EmitLane();
    } else if (e_.gpu()) {
      EmitGroup();
    } else if (key_.columns) {
      EmitColumns();
    } else {
      EmitItems();
    }
    return monoid_.status();
  }

 private:
  // The offsets of one element of an item: of the outputs, then of a.
  using Offsets = Values;

  // Returns the start of item `item` of the first `dims` dimensions.
  Offsets Begin(Value item, int dims) { return OffsetsOf(e_, args_.items, item, dims, outputs_ + 1); }
  Offsets At(const Offsets& begin, Value k) {
    Offsets offsets;
    for (size_t o = 0; o <= outputs_; ++o) offsets.push_back(e_.Add(begin[o], e_.Mul(k, args_.strides[o])));
    return offsets;
  }
  Value Load(const Offsets& at, int width = 1) {
    return e_.Load(key_.input, args_.operands[outputs_], at.back(), key_.accumulate, width);
  }
  void Store(const State& state, const Offsets& at, int width = 1) {
    const std::vector<Typed> results = monoid_.Finish(state, width);
    for (size_t o = 0; o < outputs_; ++o) {
      const ops::DType type = o == 0 ? key_.output : ops::DType::kInt64;
      e_.Store(type, args_.operands[o], at[o], results[o].value, results[o].scalar, width);
    }
  }
  Value Position(Value k, int width) {
    return width == 1 ? k : e_.ir().CreateVectorSplat(static_cast<unsigned>(width), k);
  }

  // Scans `width` neighbouring items from their first to their last element.
  void EmitLine(const Offsets& begin, int width) {
    e_.Loop(e_.I64(0), args_.length, e_.I64(1), monoid_.Init(width), [&](Value k, const Values& state) {
      const Offsets at = At(begin, k);
      const State next = monoid_.Step(state, Load(at, width), Position(k, width), width);
      Store(next, at, width);
      return next;
    });
  }

  void EmitItems() {
    Value const begin = e_.Mul(e_.Group(0), args_.item_slice);
    Value const end = e_.Min(e_.Add(begin, args_.item_slice), args_.count);
    e_.Loop(begin, end, e_.I64(1), [&](Value item) { EmitLine(Begin(item, key_.rank), 1); });
  }

  void EmitColumns() {
    constexpr int kWidth = 16;
    Value const inner = args_.items.sizes[static_cast<size_t>(key_.rank - 1)];
    Value const slices = e_.CeilDiv(inner, args_.item_slice);
    const Offsets base = Begin(e_.ir().CreateUDiv(e_.Group(0), slices), key_.rank - 1);
    Value const begin = e_.Mul(e_.ir().CreateURem(e_.Group(0), slices), args_.item_slice);
    Value const end = e_.Min(e_.Add(begin, args_.item_slice), inner);
    Value const whole =
        e_.Add(begin, e_.ir().CreateAnd(e_.ir().CreateSub(end, begin), e_.I64(-int64_t{kWidth})));
    const auto columns = [&](Value from, Value to, int width) {
      e_.Loop(from, to, e_.I64(width), [&](Value column) {
        Offsets at = base;
        for (Value& offset : at) offset = e_.Add(offset, column);
        EmitLine(at, width);
      });
    };
    columns(begin, whole, kWidth);
    columns(whole, end, 1);
  }

  void EmitLane() {
    Value const item = e_.Add(e_.Mul(e_.Group(0), e_.Lanes()), e_.Lane());
    e_.If(e_.ir().CreateICmpSLT(item, args_.count), [&] { EmitLine(Begin(item, key_.rank), 1); });
  }

  // ---- GPU: a group goes through a part of an item, tile by tile.

  State Select(Value condition, const State& yes, const State& no) {
    State chosen;
    for (size_t c = 0; c < yes.size(); ++c) chosen.push_back(e_.ir().CreateSelect(condition, yes[c], no[c]));
    return chosen;
  }
  // Loads a state; each of the `monoid_.components()` arrays has one component.
  State LoadState(const Values& arrays, Value at) {
    State state;
    for (size_t c = 0; c < arrays.size(); ++c)
      state.push_back(e_.LoadRaw(e_.TypeOf(monoid_.TypeOf(c)), arrays[c], at));
    return state;
  }
  void StoreState(const Values& arrays, Value at, const State& state) {
    for (size_t c = 0; c < arrays.size(); ++c) e_.StoreRaw(arrays[c], at, state[c]);
  }
  // Returns the arrays in the workspace, with a state for each part and item.
  Values PartStates() {
    Values arrays;
    for (size_t c = 0; c < monoid_.components(); ++c) {
      Value const first = e_.Mul(e_.I64(static_cast<int64_t>(c)), e_.Mul(args_.parts, args_.count));
      arrays.push_back(e_.Address(ops::DType::kInt64, args_.states, first));
    }
    return arrays;
  }

  void EmitGroup() {
    for (size_t c = 0; c < monoid_.components(); ++c)
      shared_.push_back(e_.Shared(e_.TypeOf(monoid_.TypeOf(c)), kGpuLanes));
    Value const item = e_.Group(0), part = e_.Group(1);
    const Offsets begin = Begin(item, key_.rank);
    Value const first = e_.Mul(part, args_.part);
    Value const end = e_.Min(e_.Add(first, args_.part), args_.length);
    State carried = monoid_.Init(1);
    if (key_.parts) {
      const Values states = PartStates();
      carried = e_.Loop(e_.I64(0), part, e_.I64(1), carried, [&](Value before, const Values& now) {
        return monoid_.Merge(now, LoadState(states, e_.Add(e_.Mul(before, args_.count), item)), 1);
      });
    }
    carried = e_.Loop(first, end, e_.I64(kTile), carried,
                      [&](Value tile, const Values& now) { return EmitTile(begin, tile, end, now); });
    if (!key_.totals) return;
    e_.If(e_.ir().CreateICmpEQ(e_.Lane(), e_.I64(0)),
          [&] { StoreState(PartStates(), e_.Add(e_.Mul(part, args_.count), item), carried); });
  }

  // Returns the state after a tile, from the state before it.
  State EmitTile(const Offsets& begin, Value tile, Value end, const State& before) {
    Value const own = e_.Add(tile, e_.Mul(e_.Lane(), e_.I64(kLaneElements)));
    Values positions, inside, elements;
    std::vector<Offsets> at;
    for (int64_t i = 0; i < kLaneElements; ++i) {
      positions.push_back(e_.Add(own, e_.I64(i)));
      inside.push_back(e_.ir().CreateICmpSLT(positions.back(), end));
      at.push_back(At(begin, e_.Min(positions.back(), e_.ir().CreateSub(end, e_.I64(1)))));
      elements.push_back(Load(at.back()));
    }
    const auto step = [&](const State& state, size_t i) {
      return Select(inside[i], monoid_.Step(state, elements[i], positions[i], 1), state);
    };
    State mine = monoid_.Init(1);
    for (size_t i = 0; i < kLaneElements; ++i) mine = step(mine, i);
    ScanLanes(mine);
    Value const previous = e_.ir().CreateSelect(e_.ir().CreateICmpEQ(e_.Lane(), e_.I64(0)), e_.I64(0),
                                                e_.ir().CreateSub(e_.Lane(), e_.I64(1)));
    const State after = monoid_.Merge(before, LoadState(shared_, e_.I64(kGpuLanes - 1)), 1);
    if (!key_.totals) {
      State state = Select(e_.ir().CreateICmpEQ(e_.Lane(), e_.I64(0)), before,
                           monoid_.Merge(before, LoadState(shared_, previous), 1));
      for (size_t i = 0; i < kLaneElements; ++i) {
        state = step(state, i);
        e_.If(inside[i], [&] { Store(state, at[i]); });
      }
    }
    e_.Barrier();  // before the next tile overwrites it
    return after;
  }

  // Sets shared_[l] to the merged states of lanes 0 to l.
  void ScanLanes(State state) {
    StoreState(shared_, e_.Lane(), state);
    e_.Barrier();
    for (int64_t distance = 1; distance < kGpuLanes; distance *= 2) {
      Value const reaches = e_.ir().CreateICmpSGE(e_.Lane(), e_.I64(distance));
      Value const from =
          e_.ir().CreateSelect(reaches, e_.ir().CreateSub(e_.Lane(), e_.I64(distance)), e_.I64(0));
      const State before = LoadState(shared_, from);
      state = Select(reaches, monoid_.Merge(before, state, 1), state);
      e_.Barrier();
      StoreState(shared_, e_.Lane(), state);
      e_.Barrier();
    }
  }

  const ScanKey& key_;
  const ScanArguments<Emitted>& args_;
  Emitter& e_;
  MonoidEmission monoid_;
  const size_t outputs_ = key_.row->outputs;
  Values shared_;
};

}  // namespace

absl::Status ScanSkeleton::EmitBody(const ScanKey& key, const ScanArguments<Emitted>& arguments,
                                    Emitter& e) const {
  ASSIGN_OR_RETURN(const ReduceFormula formula, ParseReduce(key.row->formula));
  return ScanEmission(key, arguments, formula, e).Run();
}

constinit const PlannerFactory kScanPlanner = MakePlanner<ScanPlanner>;
constinit const PlannerFactory kIndexedScanPlanner = MakePlanner<ScanPlanner>;

}  // namespace xpud::kernels
