#include "kernels/families/foreach_reduce.h"

#include <functional>
#include <utility>
#include <vector>

#include "kernels/families/monoid_emission.h"
#include "kernels/families/planners.h"
#include "kernels/families/slices.h"
#include "proto/base/status_macros.h"
#include "proto/ops/families/foreach.h"

namespace xpud::kernels {

// ---- planning

namespace {

constexpr int64_t kHostPart = 16384;  // elements

constexpr int64_t PartOf(Target target) { return target == Target::kHost ? kHostPart : kGpuUnit; }

// On the host a sum of f32 is made in f64, which costs no time: memory is slower.
Scalar AccumulateFor(ops::DType compute, Target target) {
  const Scalar scalar = AccumulateOf(compute);
  return scalar == Scalar::kF32 && target == Target::kHost ? Scalar::kF64 : scalar;
}

// Sizes beside one of 0 may be of any magnitude.
bool IsEmpty(const Operand& self) {
  for (size_t d = 0; d < self.rank; ++d)
    if (self.sizes[d] == 0) return true;
  return false;
}

// Returns whether the elements lie without gaps. `ordered`: in row-major order.
bool IsLine(const Operand& self, bool ordered) {
  if (IsEmpty(self)) return true;
  Layout layout = Layout::Over(self);
  layout.AddOperand(self);
  layout.Collapse(/*may_permute=*/!ordered);
  return layout.rank == 1 && layout.AccessOf(0) == Access::kContiguous;
}

}  // namespace

absl::StatusOr<Readiness> ForeachReducePlanner::Plan(const OpCall& call, Workspace workspace,
                                                     LaunchList& launches) {
  const ops::OperandLists lists(call);
  const ops::Row& row = *ops::FindRow(static_cast<uint16_t>(ops::Read<ops::ForeachReduceCall>(call).row));
  OpCall one = call;
  one.row = &row;
  readiness_ = Readiness::kReady;
  tensors_ = 0;
  for (size_t i = 0; i < lists.size(); ++i) {
    const Operand &out = lists.At(0, i), &self = lists.At(1, i);
    if (!IsLine(self, row.types == ops::TypeRule::kIndex)) {
      RETURN_IF_ERROR(PlanAlone(one, out, self, workspace, launches));
      continue;
    }
    const ForeachReduceKey key = {.row = &row,
                                  .accumulate = AccumulateFor(call.compute, cache_.target()),
                                  .input = self.dtype,
                                  .output = out.dtype,
                                  .small = lists.size() <= static_cast<size_t>(kSmallPack)};
    if (tensors_ > 0 && (!(key == key_) || tensors_ == key_.capacity()))
      RETURN_IF_ERROR(Flush(workspace, launches));
    key_ = key;
    Join(out, self);
  }
  RETURN_IF_ERROR(Flush(workspace, launches));
  return readiness_;
}

absl::Status ForeachReducePlanner::PlanAlone(const OpCall& call, const Operand& out, const Operand& self,
                                             Workspace workspace, LaunchList& launches) {
  Operand reduced = out;
  reduced.rank = self.rank;
  reduced.sizes.fill(1);
  reduced.strides.fill(1);
  const ops::Number attribute;
  OpCall one = call;
  one.outputs = {&reduced, 1};
  one.inputs = {&self, 1};
  one.attributes = {&attribute, 1};
  one.lists = {};
  ASSIGN_OR_RETURN(const Readiness ready, reductions_.Plan(one, workspace, launches));
  if (ready == Readiness::kCompiling) readiness_ = ready;
  return absl::OkStatus();
}

void ForeachReducePlanner::Join(const Operand& out, const Operand& self) {
  const auto t = static_cast<size_t>(tensors_++);
  const int64_t count = IsEmpty(self) ? 0 : self.numel();
  addresses_[0][t] = out.data;
  addresses_[1][t] = self.data;
  arguments_.pack.counts[t] = count;
  elements_ += count;
  parts_ += CeilDiv(count, PartOf(cache_.target()));
}

absl::Status ForeachReducePlanner::Flush(Workspace workspace, LaunchList& launches) {
  if (tensors_ == 0) return absl::OkStatus();
  const int tensors = std::exchange(tensors_, 0);
  const int64_t elements = std::exchange(elements_, 0), parts = std::exchange(parts_, 0);
  ForeachReduceKey finish_key = key_;
  finish_key.finish = true;
  ASSIGN_OR_RETURN(const Kernel* const kernel, cache_.Find(skeleton_, key_));
  ASSIGN_OR_RETURN(const Kernel* const finish, cache_.Find(skeleton_, finish_key));
  if (kernel == nullptr || finish == nullptr) {
    readiness_ = Readiness::kCompiling;
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(void* const states, workspace(ReduceFormula::kMaxComponents *
                                                 static_cast<size_t>(parts + 1) * kComponentBytes));
  arguments_.states = states;
  arguments_.parts = parts;
  PackSize size = {.target = cache_.target(),
                   .tensors = tensors,
                   .slots = ForeachReduceKey::kSlots,
                   .elements = elements,
                   .units = parts,
                   .unit = PartOf(cache_.target()),
                   .nanoseconds = static_cast<float>(ops::SizeOf(key_.input)) / kBytesPerNanosecond + 0.1f};
  if (parts > 0) {
    arguments_.pack.pointers[0] = addresses_[1];
    Launch& launch = launches.Add();
    launch.Reset(kernel, 1);
    FinishPack(size, arguments_.pack, launch);
    PushArguments(key_, arguments_, launch);
  }
  size.units = size.target == Target::kHost ? 1 : tensors;  // groups
  arguments_.pack.pointers[0] = addresses_[0];
  Launch& launch = launches.Add();
  launch.Reset(finish, 1);
  FinishPack(size, arguments_.pack, launch);
  PushArguments(finish_key, arguments_, launch);
  return absl::OkStatus();
}

// ---- emission

namespace {

class ForeachReduceEmission {
 public:
  using Value = llvm::Value*;
  using Values = std::vector<llvm::Value*>;
  using State = MonoidEmission::State;
  using Slice = PackEmission::Slice;

  ForeachReduceEmission(const ForeachReduceKey& key, const ForeachReduceArguments<Emitted>& arguments,
                        const ReduceFormula& formula, Emitter& emitter)
      : key_(key),
        args_(arguments),
        e_(emitter),
        monoid_(emitter, formula, key.accumulate),
        part_(PartOf(emitter.target())) {}

  absl::Status Run() {
    PackEmission pack(e_, args_.pack, ForeachReduceKey::kSlots, key_.capacity());
    if (key_.finish) {
      pack.ForEachTensor(part_, [&](const Slice& slice) { EmitFinish(slice); });
    } else {
      pack.ForEachSlice(part_, [&](const Slice& slice) { EmitParts(slice); });
    }
    return monoid_.status();
  }

 private:
  // The attribute has its default.
  void Bind(Value count) { monoid_.Bind(e_.Constant(key_.accumulate, 0), count); }

  Value Component(size_t c) {
    Value const first = e_.Mul(e_.I64(static_cast<int64_t>(c)), args_.parts);
    return e_.Address(ops::DType::kInt64, args_.states, first);
  }
  State LoadState(Value at) {
    State state;
    for (size_t c = 0; c < monoid_.components(); ++c)
      state.push_back(e_.LoadRaw(e_.TypeOf(monoid_.TypeOf(c)), Component(c), at));
    return state;
  }
  void StoreState(Value at, const State& state) {
    for (size_t c = 0; c < state.size(); ++c) e_.StoreRaw(Component(c), at, state[c]);
  }
  void OnFirstLane(const std::function<void()>& then) {
    if (!e_.gpu()) return then();
    e_.If(e_.ir().CreateICmpEQ(e_.Lane(), e_.I64(0)), then);
  }

  State Step(const State& state, const Slice& slice, Value j, int width) {
    Value position = j;
    if (width > 1) {
      Value const lanes = e_.ir().CreateStepVector(
          llvm::FixedVectorType::get(e_.ir().getInt64Ty(), static_cast<unsigned>(width)));
      position = e_.ir().CreateAdd(e_.ir().CreateVectorSplat(static_cast<unsigned>(width), j), lanes);
    }
    return monoid_.Step(state, e_.Load(key_.input, slice.slots[0], j, key_.accumulate, width), position,
                        width);
  }

  void EmitParts(const Slice& slice) {
    Bind(slice.count);
    const auto part = [&](Value p) {
      Value const begin = e_.Mul(p, e_.I64(part_));
      Value const end = e_.Min(e_.Add(begin, e_.I64(part_)), slice.count);
      const State state = e_.gpu() ? ReduceByLanes(slice, begin, end) : ReduceByVectors(slice, begin, end);
      OnFirstLane([&] { StoreState(e_.Add(slice.first, p), state); });
    };
    if (e_.gpu()) return part(slice.from);
    e_.Loop(slice.from, slice.to, e_.I64(1), part);
  }

  // Two vectors of states, so that their operations are in flight together.
  State ReduceByVectors(const Slice& slice, Value begin, Value end) {
    constexpr int kWidth = 16;
    const size_t components = monoid_.components();
    Value const length = e_.ir().CreateAnd(e_.ir().CreateSub(end, begin), e_.I64(-int64_t{2 * kWidth}));
    Value const whole = e_.Add(begin, length);
    Values states = monoid_.Init(kWidth);
    for (Value v : monoid_.Init(kWidth)) states.push_back(v);
    states = e_.Loop(begin, whole, e_.I64(2 * kWidth), states, [&](Value j, const Values& now) {
      const auto middle = now.begin() + static_cast<ptrdiff_t>(components);
      Values next = Step({now.begin(), middle}, slice, j, kWidth);
      for (Value v : Step({middle, now.end()}, slice, e_.Add(j, e_.I64(kWidth)), kWidth)) next.push_back(v);
      return next;
    });
    const auto middle = states.begin() + static_cast<ptrdiff_t>(components);
    const State merged = monoid_.Merge({states.begin(), middle}, {middle, states.end()}, kWidth);
    return e_.Loop(whole, end, e_.I64(1), monoid_.MergeLanes(merged, kWidth),
                   [&](Value j, const Values& now) { return Step(now, slice, j, 1); });
  }

  State ReduceByLanes(const Slice& slice, Value begin, Value end) {
    constexpr int64_t kTogether = 8;
    const State mine = e_.LoopUnrolled(e_.Add(begin, e_.Lane()), end, kGpuLanes, 1, kTogether,
                                       monoid_.Init(1), [&](const Values& indices, const Values& now) {
                                         State state = now;
                                         for (Value j : indices) state = Step(state, slice, j, 1);
                                         return state;
                                       });
    return monoid_.MergeGroup(mine, /*once=*/true);
  }

  void EmitFinish(const Slice& slice) {
    Bind(slice.count);
    State state = e_.Loop(e_.Lane(), slice.to, e_.Lanes(), monoid_.Init(1), [&](Value p, const Values& now) {
      return monoid_.Merge(now, LoadState(e_.Add(slice.first, p)), 1);
    });
    if (e_.gpu()) state = monoid_.MergeGroup(state, /*once=*/true);
    OnFirstLane([&] {
      const Typed result = monoid_.Finish(state, 1)[0];
      e_.Store(key_.output, slice.slots[0], e_.I64(0), result.value, result.scalar);
    });
  }

  const ForeachReduceKey& key_;
  const ForeachReduceArguments<Emitted>& args_;
  Emitter& e_;
  MonoidEmission monoid_;
  const int64_t part_;
};

}  // namespace

absl::Status ForeachReduceSkeleton::EmitBody(const ForeachReduceKey& key,
                                             const ForeachReduceArguments<Emitted>& arguments,
                                             Emitter& e) const {
  ASSIGN_OR_RETURN(const ReduceFormula formula, ParseReduce(Formula(key)));
  return ForeachReduceEmission(key, arguments, formula, e).Run();
}

constinit const PlannerFactory kForeachReducePlanner = MakePlanner<ForeachReducePlanner>;

}  // namespace xpud::kernels
