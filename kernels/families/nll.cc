#include "kernels/families/nll.h"

#include <algorithm>

#include "kernels/families/row_emission.h"
#include "kernels/families/skeleton_number.h"
#include "kernels/families/slices.h"
#include "proto/base/status_macros.h"

namespace xpud::kernels {

// ---- planning

namespace {

enum Reduction : int64_t { kNone = 0, kMean = 1, kSum = 2 };
constexpr float kRowNanoseconds = 8;  // a loss: two scattered loads

Launch& Begin(LaunchList& launches, const Kernel* kernel, int64_t groups, bool gpu) {
  Launch& launch = launches.Add();
  launch.Reset(kernel, static_cast<uint32_t>(std::max<int64_t>(groups, 1)));
  if (gpu) launch.group_size = {kGpuLanes, 1, 1};
  return launch;
}

// A launch of any stage but kMerge. `logp` may be absent.
void PushForward(Launch& launch, const OpCall& call, void* loss, void* total, const Operand& logp,
                 const Operand& target, const Operand& weight, int64_t slice, int64_t loss_stride) {
  void* const class_weights = weight.present ? weight.data : nullptr;
  for (void* pointer :
       {loss, total, logp.data, target.data, class_weights, static_cast<void*>(call.error_word)})
    launch.Push(pointer);
  for (const int64_t number :
       {logp.sizes[0], logp.sizes[1], call.attributes[1].AsInteger(), slice, logp.strides[0], logp.strides[1],
        target.strides[0], weight.present ? weight.strides[0] : 0, loss_stride}) {
    launch.Push(number);
  }
}

}  // namespace

absl::StatusOr<Readiness> NllPlanner::Plan(const OpCall& call, Workspace workspace, LaunchList& launches) {
  return call.row->outputs == 1 ? PlanBackward(call, workspace, launches)
                                : PlanForward(call, workspace, launches);
}

absl::StatusOr<Readiness> NllPlanner::PlanForward(const OpCall& call, Workspace workspace,
                                                  LaunchList& launches) {
  const Operand &logp = call.inputs[0], &target = call.inputs[1], &weight = call.inputs[2];
  const int64_t rows = logp.sizes[0], reduction = call.attributes[0].AsInteger();
  const bool gpu = cache_.target() != Target::kHost;
  const int64_t parts = CeilDiv(rows, kNllPart);

  NllKey key;
  key.stage = reduction == kNone ? NllStage::kEach : parts <= 1 ? NllStage::kSum : NllStage::kPart;
  key.input = logp.dtype;
  key.target = target.dtype;
  key.other = call.outputs[1].dtype;
  key.weighted = weight.present;
  key.mean = reduction == kMean;
  ASSIGN_OR_RETURN(const Kernel* const kernel, cache_.Find(forward_, key.Pack(/*backward=*/false)));
  NllKey merge_key = key;
  merge_key.stage = NllStage::kMerge;
  const Kernel* merge = nullptr;
  if (key.stage == NllStage::kPart) {
    ASSIGN_OR_RETURN(merge, cache_.Find(forward_, merge_key.Pack(/*backward=*/false)));
    if (merge == nullptr) return Readiness::kCompiling;
  }
  if (kernel == nullptr) return Readiness::kCompiling;

  void* const loss = call.outputs[0].data;
  void* const total = call.outputs[1].data;
  if (key.stage != NllStage::kPart) {
    const bool each = key.stage == NllStage::kEach;
    const int64_t slice = !each ? kNllPart : gpu ? kGpuLanes : SliceOf(rows, kRowNanoseconds);
    PushForward(Begin(launches, kernel, CeilDiv(rows, slice), gpu), call, loss, total, logp, target, weight,
                slice, each ? call.outputs[0].strides[0] : 0);
    return Readiness::kReady;
  }
  ASSIGN_OR_RETURN(void* const states, workspace(static_cast<size_t>(parts) * 2 * sizeof(double)));
  PushForward(Begin(launches, kernel, parts, gpu), call, states, nullptr, logp, target, weight, kNllPart, 0);
  Launch& merging = Begin(launches, merge, 1, gpu);
  for (void* pointer : {loss, total, states}) merging.Push(pointer);
  merging.Push(parts);
  return Readiness::kReady;
}

absl::StatusOr<Readiness> NllPlanner::PlanBackward(const OpCall& call, Workspace workspace,
                                                   LaunchList& launches) {
  const Operand &dx = call.outputs[0], &gradient = call.inputs[0], &logp = call.inputs[1],
                &target = call.inputs[2];
  const Operand& weight = call.inputs[3];
  const int64_t rows = dx.sizes[0], classes = dx.sizes[1], reduction = call.attributes[0].AsInteger();
  if (rows * classes == 0) return Readiness::kReady;
  const bool gpu = cache_.target() != Target::kHost;
  const int64_t parts = CeilDiv(rows, kNllPart);

  NllKey key;
  key.input = gradient.dtype;
  key.target = target.dtype;
  key.other = dx.dtype;
  key.weighted = weight.present;
  key.mean = reduction == kMean;
  key.each = reduction == kNone;
  key.contiguous = dx.strides[1] == 1;
  ASSIGN_OR_RETURN(const Kernel* const kernel, cache_.Find(backward_, key.Pack(/*backward=*/true)));
  void* states = nullptr;
  if (key.mean) {
    NllKey total_key;
    total_key.stage = NllStage::kWeights;
    total_key.input = key.input;
    total_key.target = key.target;
    total_key.weighted = key.weighted;
    ASSIGN_OR_RETURN(const Kernel* const total, cache_.Find(forward_, total_key.Pack(/*backward=*/false)));
    if (total == nullptr || kernel == nullptr) return Readiness::kCompiling;
    ASSIGN_OR_RETURN(states, workspace(static_cast<size_t>(parts) * 2 * sizeof(double)));
    PushForward(Begin(launches, total, parts, gpu), call, states, nullptr, logp, target, weight, kNllPart, 0);
  }
  if (kernel == nullptr) return Readiness::kCompiling;

  const float row_nanoseconds =
      static_cast<float>(classes) * static_cast<float>(ops::SizeOf(dx.dtype)) / kBytesPerNanosecond +
      kRowNanoseconds;
  const int64_t slice = gpu ? kGpuLanes : SliceOf(rows, row_nanoseconds, 1);
  Launch& launch = Begin(launches, kernel, CeilDiv(gpu ? rows * classes : rows, slice), gpu);
  void* const class_weights = weight.present ? weight.data : nullptr;
  for (void* pointer :
       {dx.data, gradient.data, target.data, class_weights, states, static_cast<void*>(call.error_word)})
    launch.Push(pointer);
  for (const int64_t number :
       {rows, classes, call.attributes[1].AsInteger(), slice, parts, dx.strides[0], dx.strides[1],
        key.each ? gradient.strides[0] : 0, target.strides[0], weight.present ? weight.strides[0] : 0}) {
    launch.Push(number);
  }
  return Readiness::kReady;
}

// ---- emission

KernelKey NllKey::Pack(bool backward) const {
  KeyWriter writer(
      static_cast<uint8_t>(backward ? SkeletonNumber::kNllBackward : SkeletonNumber::kNllForward));
  writer.Put(static_cast<uint64_t>(stage), 3);
  for (const ops::DType type : {input, target, other}) writer.Put(static_cast<uint64_t>(type), 4);
  for (const bool flag : {weighted, mean, each, contiguous}) writer.Put(flag, 1);
  return writer.key();
}

NllKey NllKey::Unpack(const KernelKey& packed) {
  KeyReader reader(packed);
  NllKey key;
  key.stage = static_cast<NllStage>(reader.Take(3));
  for (ops::DType* type : {&key.input, &key.target, &key.other})
    *type = static_cast<ops::DType>(reader.Take(4));
  for (bool* flag : {&key.weighted, &key.mean, &key.each, &key.contiguous}) *flag = reader.Take(1) != 0;
  return key;
}

namespace {

using Value = llvm::Value*;
using Values = std::vector<llvm::Value*>;

// What both directions do with a row's target.
class TargetEmission {
 public:
  TargetEmission(const NllKey& key, Emitter& emitter) : key_(key), e_(emitter), real_(key.accumulate()) {}

 protected:
  struct Target {
    Value value = nullptr;
    Value counts = nullptr;  // i1: in range and not ignored
    Value wrong = nullptr;   // i1: out of range and not ignored
  };

  Target LoadTarget(Value pointer, Value offset, Value classes, Value ignore) {
    Value const value = e_.Load(key_.target, pointer, offset, Scalar::kI64);
    Value const heeded = e_.ir().CreateICmpNE(value, ignore);
    Value const inside = e_.IsIndex(value, classes);
    return {value, e_.ir().CreateAnd(heeded, inside), e_.ir().CreateAnd(heeded, e_.ir().CreateNot(inside))};
  }

  Value WeightOf(Value pointer, Value offset) {
    return key_.weighted ? e_.Load(key_.input, pointer, offset, real_) : e_.Constant(real_, 1);
  }

  // then(current) where `condition` holds, else `current`.
  Values Where(Value condition, const Values& current, const std::function<Values(const Values&)>& then) {
    return e_.Loop(e_.I64(0), e_.ir().CreateZExt(condition, e_.ir().getInt64Ty()), e_.I64(1), current,
                   [&](Value, const Values& carried) { return then(carried); });
  }

  Value IsFirstLane() { return e_.ir().CreateICmpEQ(e_.Lane(), e_.I64(0)); }

  // Element `which` (0: loss, 1: weight) of part `part`.
  Value LoadState(Value states, Value part, int64_t which) {
    return e_.LoadRaw(e_.TypeOf(real_), states, e_.Add(e_.Mul(part, e_.I64(2)), e_.I64(which)));
  }

  const NllKey& key_;
  Emitter& e_;
  const Scalar real_;
};

class ForwardEmission : public TargetEmission {
 public:
  using TargetEmission::TargetEmission;

  void Run(const std::string& name) {
    if (key_.stage == NllStage::kMerge) return EmitMerge(name);
    std::vector<ArgType> args(6, ArgType::kPointer);
    args.resize(15, ArgType::kI64);
    e_.Begin(name, args);
    Value const begin = e_.Mul(e_.Group(0), Slice());
    Value const end = e_.Min(e_.Add(begin, Slice()), Rows());
    if (key_.stage == NllStage::kEach) {
      EmitEach(begin, end);
    } else {
      EmitSum(begin, end);
    }
  }

 private:
  Value Rows() const { return e_.Arg(6); }
  Value Slice() const { return e_.Arg(9); }
  Value Zero() { return e_.Constant(real_, 0); }

  // (loss, weight) with row n's added.
  Values AddRow(Value n, const Values& sums) {
    const Target target = LoadTarget(e_.Arg(3), e_.Mul(n, e_.Arg(12)), e_.Arg(7), e_.Arg(8));
    e_.ReportIndex(e_.Arg(5), target.wrong, target.value);
    return Where(target.counts, sums, [&](const Values& current) -> Values {
      Value const weight = WeightOf(e_.Arg(4), e_.Mul(target.value, e_.Arg(13)));
      Value const total = e_.ir().CreateFAdd(current[1], weight);
      if (key_.stage == NllStage::kWeights) return {current[0], total};
      Value const at = e_.Add(e_.Mul(n, e_.Arg(10)), e_.Mul(target.value, e_.Arg(11)));
      Value const logp = e_.Load(key_.input, e_.Arg(2), at, real_);
      return {e_.ir().CreateFSub(current[0], e_.ir().CreateFMul(weight, logp)), total};
    });
  }

  void EmitEach(Value begin, Value end) {
    e_.Loop(e_.Add(begin, e_.Lane()), end, e_.Lanes(), [&](Value n) {
      const Values row = AddRow(n, {Zero(), Zero()});
      e_.Store(key_.input, e_.Arg(0), e_.Mul(n, e_.Arg(14)), row[0], real_);
    });
    Value const first = e_.ir().CreateICmpEQ(e_.Add(begin, e_.Lane()), e_.I64(0));
    e_.If(first, [&] { e_.Store(key_.other, e_.Arg(1), e_.I64(0), Zero(), real_); });
  }

  void EmitSum(Value begin, Value end) {
    // In blocks, each with a sum of its own: thousands of additions to one sum would lose digits.
    Value const block = e_.Mul(e_.I64(64), e_.Lanes());
    Values sums =
        e_.Loop(begin, end, block, {Zero(), Zero()}, [&](Value first, const Values& current) -> Values {
          Value const last = e_.Min(e_.Add(first, block), end);
          const Values sum = e_.Loop(e_.Add(first, e_.Lane()), last, e_.Lanes(), {Zero(), Zero()},
                                     [&](Value n, const Values& here) { return AddRow(n, here); });
          return {e_.ir().CreateFAdd(current[0], sum[0]), e_.ir().CreateFAdd(current[1], sum[1])};
        });
    for (Value& sum : sums) sum = SumOverGroup(e_, sum);
    e_.If(IsFirstLane(), [&] {
      if (key_.stage == NllStage::kSum) return StoreResult(sums);
      Value const at = e_.Mul(e_.Group(0), e_.I64(2));
      e_.StoreRaw(e_.Arg(0), at, sums[0]);
      e_.StoreRaw(e_.Arg(0), e_.Add(at, e_.I64(1)), sums[1]);
    });
  }

  void StoreResult(const Values& sums) {
    Value const loss = key_.mean ? e_.ir().CreateFDiv(sums[0], sums[1]) : sums[0];
    e_.Store(key_.input, e_.Arg(0), e_.I64(0), loss, real_);
    e_.Store(key_.other, e_.Arg(1), e_.I64(0), sums[1], real_);
  }

  void EmitMerge(const std::string& name) {
    e_.Begin(name,
             std::vector<ArgType>{ArgType::kPointer, ArgType::kPointer, ArgType::kPointer, ArgType::kI64});
    e_.If(IsFirstLane(), [&] {
      StoreResult(e_.Loop(e_.I64(0), e_.Arg(3), e_.I64(1), {Zero(), Zero()},
                          [&](Value part, const Values& current) -> Values {
                            return {e_.ir().CreateFAdd(current[0], LoadState(e_.Arg(2), part, 0)),
                                    e_.ir().CreateFAdd(current[1], LoadState(e_.Arg(2), part, 1))};
                          }));
    });
  }
};

class BackwardEmission : public TargetEmission {
 public:
  using TargetEmission::TargetEmission;

  void Run(const std::string& name) {
    std::vector<ArgType> args(6, ArgType::kPointer);
    args.resize(16, ArgType::kI64);
    e_.Begin(name, args);
    Value const begin = e_.Mul(e_.Group(0), e_.Arg(9));
    if (key_.mean) total_ = EmitTotal();
    if (e_.gpu()) {
      EmitElements(begin, e_.Min(e_.Add(begin, e_.Arg(9)), e_.Mul(e_.Arg(6), e_.Arg(7))));
    } else {
      EmitRows(begin, e_.Min(e_.Add(begin, e_.Arg(9)), e_.Arg(6)));
    }
  }

 private:
  Value EmitTotal() {
    return e_.Loop(e_.I64(0), e_.Arg(10), e_.I64(1), {e_.Constant(real_, 0)},
                   [&](Value part, const Values& current) -> Values {
                     return {e_.ir().CreateFAdd(current[0], LoadState(e_.Arg(4), part, 1))};
                   })[0];
  }

  Value OffsetOf(Value row, Value column) {
    return e_.Add(e_.Mul(row, e_.Arg(11)), key_.contiguous ? column : e_.Mul(column, e_.Arg(12)));
  }

  // The gradient at (row, class of its target).
  Value GradientAt(Value row, Value target) {
    Value gradient = e_.Load(key_.input, e_.Arg(1), key_.each ? e_.Mul(row, e_.Arg(13)) : e_.I64(0), real_);
    if (key_.mean) gradient = e_.ir().CreateFDiv(gradient, total_);
    return e_.ir().CreateFNeg(e_.ir().CreateFMul(gradient, WeightOf(e_.Arg(3), e_.Mul(target, e_.Arg(15)))));
  }

  void EmitRows(Value begin, Value end) {
    e_.Loop(begin, end, e_.I64(1), [&](Value row) {
      e_.Loop(
          e_.I64(0), e_.Arg(7), e_.I64(1),
          [&](Value c) { e_.Store(key_.other, e_.Arg(0), OffsetOf(row, c), e_.Constant(real_, 0), real_); },
          Emitter::LoopKind::kParallel);
      const Target target = LoadTarget(e_.Arg(2), e_.Mul(row, e_.Arg(14)), e_.Arg(7), e_.Arg(8));
      e_.ReportIndex(e_.Arg(5), target.wrong, target.value);
      e_.If(target.counts, [&] {
        e_.Store(key_.other, e_.Arg(0), OffsetOf(row, target.value), GradientAt(row, target.value), real_);
      });
    });
  }

  void EmitElements(Value begin, Value end) {
    e_.Loop(e_.Add(begin, e_.Lane()), end, e_.Lanes(), [&](Value i) {
      Value const row = e_.ir().CreateUDiv(i, e_.Arg(7));
      Value const column = e_.ir().CreateSub(i, e_.Mul(row, e_.Arg(7)));
      const Target target = LoadTarget(e_.Arg(2), e_.Mul(row, e_.Arg(14)), e_.Arg(7), e_.Arg(8));
      Value const reports = e_.ir().CreateAnd(target.wrong, e_.ir().CreateICmpEQ(column, e_.I64(0)));
      e_.ReportIndex(e_.Arg(5), reports, target.value);
      Value const here = e_.ir().CreateAnd(target.counts, e_.ir().CreateICmpEQ(column, target.value));
      const Values value = Where(here, {e_.Constant(real_, 0)},
                                 [&](const Values&) -> Values { return {GradientAt(row, column)}; });
      e_.Store(key_.other, e_.Arg(0), OffsetOf(row, column), value[0], real_);
    });
  }

  Value total_ = nullptr;
};

}  // namespace

std::string NllForwardSkeleton::NameOf(const KernelKey&) const { return "nll_loss_forward"; }
std::string NllForwardSkeleton::Describe(const KernelKey&) const { return "nll"; }
absl::Status NllForwardSkeleton::Emit(const KernelKey& packed, const std::string& name,
                                      Emitter& emitter) const {
  const NllKey key = NllKey::Unpack(packed);
  ForwardEmission(key, emitter).Run(name);
  return absl::OkStatus();
}

std::string NllBackwardSkeleton::NameOf(const KernelKey&) const { return "nll_loss_backward"; }
std::string NllBackwardSkeleton::Describe(const KernelKey&) const { return "nll"; }
absl::Status NllBackwardSkeleton::Emit(const KernelKey& packed, const std::string& name,
                                       Emitter& emitter) const {
  const NllKey key = NllKey::Unpack(packed);
  BackwardEmission(key, emitter).Run(name);
  return absl::OkStatus();
}

}  // namespace xpud::kernels
