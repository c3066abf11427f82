#include "kernels/families/nll.h"

#include <algorithm>

#include "kernels/families/planners.h"
#include "kernels/families/row_emission.h"
#include "kernels/families/slices.h"
#include "proto/base/status_macros.h"
#include "proto/ops/families/nll_loss.h"

namespace xpud::kernels {

// ---- planning

namespace {

enum Reduction : int64_t { kNone = 0, kMean = 1, kSum = 2 };
constexpr float kRowNanoseconds = 8;  // of a loss, with two scattered loads

// The number of rows: all elements but classes.
int64_t RowsOf(const Operand& scores) { return scores.sizes[0] * (scores.rank == 3 ? scores.sizes[2] : 1); }

// The strides of targets or scores along rows, or along positions and images.
struct RowStrides {
  explicit RowStrides(const Operand& operand)
      : row(operand.rank == 0 ? 0 : operand.strides[operand.rank > 1 ? operand.rank - 1u : 0]),
        image(operand.strides[0]) {}
  int64_t row, image;
};

Launch& Begin(LaunchList& launches, const Kernel* kernel, int64_t groups, bool gpu) {
  Launch& launch = launches.Add();
  launch.Reset(kernel, std::max<int64_t>(groups, 1));
  if (gpu) launch.group_size = {kGpuLanes, 1, 1};
  return launch;
}

// Pushes the arguments of any stage except kMerge. `nll`: a call of either direction.
template <typename Nll>
void PushForward(const NllKey& key, const OpCall& call, const Nll& nll, void* loss, void* total,
                 int64_t slice, const RowStrides& losses, Launch& launch) {
  const Operand &self = *nll.self, &target = *nll.target, &weight = *nll.weight;
  NllForwardArguments<Planned> arguments;
  arguments.loss = loss;
  arguments.total = total;
  arguments.input = self.data;
  arguments.target = target.data;
  arguments.weights = weight.present ? weight.data : nullptr;
  arguments.error_word = call.error_word;
  arguments.rows = RowsOf(self);
  arguments.classes = self.sizes[1];
  arguments.ignore = nll.attributes.ignore_index;
  arguments.slice = slice;
  arguments.input_row_stride = self.strides[key.planes ? 2 : 0];
  arguments.input_class_stride = self.strides[1];
  arguments.target_stride = RowStrides(target).row;
  arguments.weight_stride = weight.present ? weight.strides[0] : 0;
  arguments.loss_stride = losses.row;
  arguments.positions = key.planes ? self.sizes[2] : 1;
  arguments.input_image_stride = self.strides[0];
  arguments.target_image_stride = target.strides[0];
  arguments.loss_image_stride = losses.image;
  PushArguments(key, arguments, launch);
}

}  // namespace

absl::StatusOr<Readiness> NllPlanner::Plan(const OpCall& call, Workspace workspace, LaunchList& launches) {
  return call.row->outputs == 1 ? PlanBackward(call, workspace, launches)
                                : PlanForward(call, workspace, launches);
}

absl::StatusOr<Readiness> NllPlanner::PlanForward(const OpCall& call, Workspace workspace,
                                                  LaunchList& launches) {
  const auto nll = ops::Read<ops::NllLossCall>(call);
  const int64_t rows = RowsOf(*nll.self), reduction = nll.attributes.reduction;
  const bool gpu = cache_.target() != Target::kHost;
  const int64_t parts = CeilDiv(rows, kNllPart);

  NllKey key;
  key.stage = reduction == kNone ? NllStage::kEach : parts <= 1 ? NllStage::kSum : NllStage::kPart;
  key.input = nll.self->dtype;
  key.target = nll.target->dtype;
  key.other = nll.total_weight->dtype;
  key.weighted = nll.weight->present;
  key.mean = reduction == kMean;
  key.planes = nll.self->rank == 3;
  ASSIGN_OR_RETURN(const Kernel* const kernel, cache_.Find(forward_, key));
  NllKey merge_key = key;
  merge_key.stage = NllStage::kMerge;
  const Kernel* merge = nullptr;
  if (key.stage == NllStage::kPart) {
    ASSIGN_OR_RETURN(merge, cache_.Find(forward_, merge_key));
    if (merge == nullptr) return Readiness::kCompiling;
  }
  if (kernel == nullptr) return Readiness::kCompiling;

  void* const loss = nll.out->data;
  void* const total = nll.total_weight->data;
  if (key.stage != NllStage::kPart) {
    const bool each = key.stage == NllStage::kEach;
    const int64_t slice = !each ? kNllPart : gpu ? kGpuLanes : SliceOf(rows, kRowNanoseconds);
    PushForward(key, call, nll, loss, total, slice, RowStrides(*nll.out),
                Begin(launches, kernel, CeilDiv(rows, slice), gpu));
    return Readiness::kReady;
  }
  ASSIGN_OR_RETURN(void* const states, workspace(static_cast<size_t>(parts) * 2 * sizeof(double)));
  PushForward(key, call, nll, states, nullptr, kNllPart, RowStrides(*nll.out),
              Begin(launches, kernel, parts, gpu));
  NllForwardArguments<Planned> arguments;
  arguments.loss = loss;
  arguments.total = total;
  arguments.states = states;
  arguments.parts = parts;
  PushArguments(merge_key, arguments, Begin(launches, merge, 1, gpu));
  return Readiness::kReady;
}

absl::StatusOr<Readiness> NllPlanner::PlanBackward(const OpCall& call, Workspace workspace,
                                                   LaunchList& launches) {
  const auto nll = ops::Read<ops::NllLossBackwardCall>(call);
  const Operand &dx = *nll.grad_input, &gradient = *nll.grad_output, &target = *nll.target,
                &weight = *nll.weight;
  const int64_t rows = RowsOf(dx), classes = dx.sizes[1], reduction = nll.attributes.reduction;
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
  key.planes = dx.rank == 3;
  key.contiguous = dx.strides[key.planes ? 2 : 1] == 1;
  ASSIGN_OR_RETURN(const Kernel* const kernel, cache_.Find(backward_, key));
  void* states = nullptr;
  if (key.mean) {
    NllKey total_key;
    total_key.stage = NllStage::kWeights;
    total_key.input = key.input;
    total_key.target = key.target;
    total_key.weighted = key.weighted;
    total_key.planes = key.planes;
    ASSIGN_OR_RETURN(const Kernel* const total, cache_.Find(forward_, total_key));
    if (total == nullptr || kernel == nullptr) return Readiness::kCompiling;
    ASSIGN_OR_RETURN(states, workspace(static_cast<size_t>(parts) * 2 * sizeof(double)));
    PushForward(total_key, call, nll, states, nullptr, kNllPart, RowStrides(gradient),
                Begin(launches, total, parts, gpu));
  }
  if (kernel == nullptr) return Readiness::kCompiling;

  const float row_nanoseconds =
      static_cast<float>(classes) * static_cast<float>(ops::SizeOf(dx.dtype)) / kBytesPerNanosecond +
      kRowNanoseconds;
  // Units: rows, or a plane for each image and class.
  const int64_t positions = key.planes ? dx.sizes[2] : 1;
  const int64_t units = key.planes ? dx.sizes[0] * classes : rows;
  const float nanoseconds = key.planes ? 5 + static_cast<float>(positions) * 0.7f : row_nanoseconds;
  const int64_t slice = gpu ? kGpuLanes : SliceOf(units, nanoseconds, 1);
  Launch& launch = Begin(launches, kernel, CeilDiv(gpu ? rows * classes : units, slice), gpu);
  const RowStrides gradients(gradient), targets(target);
  NllBackwardArguments<Planned> arguments{.dx = dx.data,
                                          .gradient = gradient.data,
                                          .target = target.data,
                                          .weights = weight.present ? weight.data : nullptr,
                                          .states = states,
                                          .error_word = call.error_word,
                                          .rows = rows,
                                          .classes = classes,
                                          .ignore = nll.attributes.ignore_index,
                                          .slice = slice,
                                          .parts = parts,
                                          .dx_row_stride = dx.strides[key.planes ? 2 : 0],
                                          .dx_class_stride = dx.strides[1],
                                          .gradient_stride = key.each ? gradients.row : 0,
                                          .target_stride = targets.row,
                                          .weight_stride = weight.present ? weight.strides[0] : 0,
                                          .positions = positions,
                                          .dx_image_stride = dx.strides[0],
                                          .gradient_image_stride = key.each ? gradients.image : 0,
                                          .target_image_stride = targets.image};
  PushArguments(key, arguments, launch);
  return Readiness::kReady;
}

// ---- emission

namespace {

using Value = llvm::Value*;
using Values = std::vector<llvm::Value*>;

// Handling of a row's target, shared by both directions.
template <typename Arguments>
class TargetEmission {
 public:
  TargetEmission(const NllKey& key, const Arguments& arguments, Emitter& emitter)
      : key_(key), args_(arguments), e_(emitter), real_(key.accumulate()) {}

 protected:
  struct Target {
    Value value = nullptr;
    Value counts = nullptr;  // i1: in range and not ignored
    Value wrong = nullptr;   // i1: out of range and not ignored
  };

  // Returns the offset of row `row`, whose image and position follow from its number.
  Value OffsetOfRow(Value row, Value stride, Value image_stride) {
    if (!key_.planes) return e_.Mul(row, stride);
    Value const position = e_.ir().CreateURem(row, args_.positions);
    Value const image = e_.ir().CreateUDiv(row, args_.positions);
    return e_.Add(e_.Mul(position, stride), e_.Mul(image, image_stride));
  }

  Target LoadTarget(Value row) {
    return LoadTargetAt(OffsetOfRow(row, args_.target_stride, args_.target_image_stride));
  }
  Target LoadTargetAt(Value offset) {
    Value const value = e_.Load(key_.target, args_.target, offset, Scalar::kI64);
    Value const heeded = e_.ir().CreateICmpNE(value, args_.ignore);
    Value const inside = e_.IsIndex(value, args_.classes);
    return {value, e_.ir().CreateAnd(heeded, inside), e_.ir().CreateAnd(heeded, e_.ir().CreateNot(inside))};
  }

  Value WeightOf(Value target) {
    Value const at = e_.Mul(target, args_.weight_stride);
    return key_.weighted ? e_.Load(key_.input, args_.weights, at, real_) : e_.Constant(real_, 1);
  }

  Value IsFirstLane() { return e_.ir().CreateICmpEQ(e_.Lane(), e_.I64(0)); }

  // Loads element `which` (0: loss, 1: weight) of part `part`.
  Value LoadState(Value part, int64_t which) {
    return e_.LoadRaw(e_.TypeOf(real_), args_.states, e_.Add(e_.Mul(part, e_.I64(2)), e_.I64(which)));
  }

  const NllKey& key_;
  const Arguments& args_;
  Emitter& e_;
  const Scalar real_;
};

class ForwardEmission : public TargetEmission<NllForwardArguments<Emitted>> {
 public:
  using TargetEmission::TargetEmission;

  void Run() {
    if (key_.stage == NllStage::kMerge) return EmitMerge();
    Value const begin = e_.Mul(e_.Group(0), args_.slice);
    Value const end = e_.Min(e_.Add(begin, args_.slice), args_.rows);
    if (key_.stage == NllStage::kEach) {
      EmitEach(begin, end);
    } else {
      EmitSum(begin, end);
    }
  }

 private:
  Value Zero() { return e_.Constant(real_, 0); }

  // Returns (loss, weight) after adding row n's.
  Values AddRow(Value n, const Values& sums) {
    const Target target = LoadTarget(n);
    e_.ReportIndex(args_.error_word, target.wrong, target.value);
    return e_.Where(target.counts, sums, [&]() -> Values {
      Value const weight = WeightOf(target.value);
      Value const total = e_.ir().CreateFAdd(sums[1], weight);
      if (key_.stage == NllStage::kWeights) return {sums[0], total};
      Value const at = e_.Add(OffsetOfRow(n, args_.input_row_stride, args_.input_image_stride),
                              e_.Mul(target.value, args_.input_class_stride));
      Value const logp = e_.Load(key_.input, args_.input, at, real_);
      return {e_.ir().CreateFSub(sums[0], e_.ir().CreateFMul(weight, logp)), total};
    });
  }

  void EmitEach(Value begin, Value end) {
    e_.Loop(e_.Add(begin, e_.Lane()), end, e_.Lanes(), [&](Value n) {
      const Values row = AddRow(n, {Zero(), Zero()});
      e_.Store(key_.input, args_.loss, OffsetOfRow(n, args_.loss_stride, args_.loss_image_stride), row[0],
               real_);
    });
    Value const first = e_.ir().CreateICmpEQ(e_.Add(begin, e_.Lane()), e_.I64(0));
    e_.If(first, [&] { e_.Store(key_.other, args_.total, e_.I64(0), Zero(), real_); });
  }

  void EmitSum(Value begin, Value end) {
    // In blocks, each with its own sum: thousands of additions to one sum would lose precision.
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
      e_.StoreRaw(args_.loss, at, sums[0]);
      e_.StoreRaw(args_.loss, e_.Add(at, e_.I64(1)), sums[1]);
    });
  }

  void StoreResult(const Values& sums) {
    Value const loss = key_.mean ? e_.ir().CreateFDiv(sums[0], sums[1]) : sums[0];
    e_.Store(key_.input, args_.loss, e_.I64(0), loss, real_);
    e_.Store(key_.other, args_.total, e_.I64(0), sums[1], real_);
  }

  void EmitMerge() {
    e_.If(IsFirstLane(), [&] {
      StoreResult(e_.Loop(e_.I64(0), args_.parts, e_.I64(1), {Zero(), Zero()},
                          [&](Value part, const Values& current) -> Values {
                            return {e_.ir().CreateFAdd(current[0], LoadState(part, 0)),
                                    e_.ir().CreateFAdd(current[1], LoadState(part, 1))};
                          }));
    });
  }
};

class BackwardEmission : public TargetEmission<NllBackwardArguments<Emitted>> {
 public:
  using TargetEmission::TargetEmission;

  void Run() {
    Value const begin = e_.Mul(e_.Group(0), args_.slice);
    if (key_.mean) total_ = EmitTotal();
    if (e_.gpu()) {
      Value const end = e_.Min(e_.Add(begin, args_.slice), e_.Mul(args_.rows, args_.classes));
      key_.planes ? EmitPlaneElements(begin, end) : EmitElements(begin, end);
    } else if (key_.planes) {
      Value const planes = e_.Mul(e_.ir().CreateUDiv(args_.rows, args_.positions), args_.classes);
      e_.Loop(begin, e_.Min(e_.Add(begin, args_.slice), planes), e_.I64(1),
              [&](Value plane) { EmitPlane(PlaneOf(plane)); });
    } else {
      EmitRows(begin, e_.Min(e_.Add(begin, args_.slice), args_.rows));
    }
  }

 private:
  Value EmitTotal() {
    return e_.Loop(e_.I64(0), args_.parts, e_.I64(1), {e_.Constant(real_, 0)},
                   [&](Value part, const Values& current) -> Values {
                     return {e_.ir().CreateFAdd(current[0], LoadState(part, 1))};
                   })[0];
  }

  Value OffsetOf(Value row, Value column) {
    return e_.Add(e_.Mul(row, args_.dx_row_stride),
                  key_.contiguous ? column : e_.Mul(column, args_.dx_class_stride));
  }

  // Returns the gradient at (row, class of its target).
  Value GradientAt(Value row, Value target) {
    Value gradient = e_.Load(key_.input, args_.gradient,
                             key_.each ? e_.Mul(row, args_.gradient_stride) : e_.I64(0), real_);
    if (key_.mean) gradient = e_.ir().CreateFDiv(gradient, total_);
    return e_.ir().CreateFNeg(e_.ir().CreateFMul(gradient, WeightOf(target)));
  }

  void EmitRows(Value begin, Value end) {
    e_.Loop(begin, end, e_.I64(1), [&](Value row) {
      e_.Loop(
          e_.I64(0), args_.classes, e_.I64(1),
          [&](Value c) { e_.Store(key_.other, args_.dx, OffsetOf(row, c), e_.Constant(real_, 0), real_); },
          Emitter::LoopKind::kParallel);
      const Target target = LoadTarget(row);
      e_.ReportIndex(args_.error_word, target.wrong, target.value);
      e_.If(target.counts, [&] {
        e_.Store(key_.other, args_.dx, OffsetOf(row, target.value), GradientAt(row, target.value), real_);
      });
    });
  }

  void EmitElements(Value begin, Value end) {
    e_.Loop(e_.Add(begin, e_.Lane()), end, e_.Lanes(), [&](Value i) {
      Value const row = e_.ir().CreateUDiv(i, args_.classes);
      Value const column = e_.ir().CreateSub(i, e_.Mul(row, args_.classes));
      const Target target = LoadTarget(row);
      Value const reports = e_.ir().CreateAnd(target.wrong, e_.ir().CreateICmpEQ(column, e_.I64(0)));
      e_.ReportIndex(args_.error_word, reports, target.value);
      Value const here = e_.ir().CreateAnd(target.counts, e_.ir().CreateICmpEQ(column, target.value));
      const Values value =
          e_.Where(here, {e_.Constant(real_, 0)}, [&]() -> Values { return {GradientAt(row, column)}; });
      e_.Store(key_.other, args_.dx, OffsetOf(row, column), value[0], real_);
    });
  }

  // ---- planes: the gradient is that of a position whose target is the plane's class, or 0

  struct Plane {
    Value image, target_class;
  };
  Plane PlaneOf(Value plane) {
    return {e_.ir().CreateUDiv(plane, args_.classes), e_.ir().CreateURem(plane, args_.classes)};
  }

  void EmitPlane(const Plane& plane) {
    const auto over = [&](const std::function<void(Value)>& body, Emitter::LoopKind kind) {
      e_.Loop(e_.I64(0), args_.positions, e_.I64(1), body, kind);
    };
    e_.If(e_.ir().CreateICmpEQ(plane.target_class, e_.I64(0)),
          [&] { over([&](Value position) { Report(plane, position); }, Emitter::LoopKind::kPlain); });
    Value const weight = WeightOf(plane.target_class);
    over([&](Value position) { EmitPosition(plane, position, weight); }, Emitter::LoopKind::kParallel);
  }

  void EmitPlaneElements(Value begin, Value end) {
    e_.Loop(e_.Add(begin, e_.Lane()), end, e_.Lanes(), [&](Value i) {
      Value const position = e_.ir().CreateURem(i, args_.positions);
      const Plane plane = PlaneOf(e_.ir().CreateUDiv(i, args_.positions));
      e_.If(e_.ir().CreateICmpEQ(plane.target_class, e_.I64(0)), [&] { Report(plane, position); });
      EmitPosition(plane, position, WeightOf(plane.target_class));
    });
  }

  Target TargetAt(const Plane& plane, Value position) {
    return LoadTargetAt(
        e_.Add(e_.Mul(position, args_.target_stride), e_.Mul(plane.image, args_.target_image_stride)));
  }
  void Report(const Plane& plane, Value position) {
    const Target target = TargetAt(plane, position);
    e_.ReportIndex(args_.error_word, target.wrong, target.value);
  }

  void EmitPosition(const Plane& plane, Value position, Value weight) {
    const Target target = TargetAt(plane, position);
    Value const from =
        e_.Add(e_.Mul(position, args_.gradient_stride), e_.Mul(plane.image, args_.gradient_image_stride));
    Value gradient = e_.Load(key_.input, args_.gradient, key_.each ? from : e_.I64(0), real_);
    if (key_.mean) gradient = e_.ir().CreateFDiv(gradient, total_);
    Value const here =
        e_.ir().CreateAnd(target.counts, e_.ir().CreateICmpEQ(target.value, plane.target_class));
    Value const result = e_.ir().CreateSelect(here, e_.ir().CreateFNeg(e_.ir().CreateFMul(gradient, weight)),
                                              e_.Constant(real_, 0));
    Value const row =
        e_.Add(e_.Mul(plane.image, args_.dx_image_stride), e_.Mul(plane.target_class, args_.dx_class_stride));
    Value const at = key_.contiguous ? position : e_.Mul(position, args_.dx_row_stride);
    e_.Store(key_.other, args_.dx, e_.Add(row, at), result, real_);
  }

  Value total_ = nullptr;
};

}  // namespace

absl::Status NllForwardSkeleton::EmitBody(const NllKey& key, const NllForwardArguments<Emitted>& arguments,
                                          Emitter& e) const {
  ForwardEmission(key, arguments, e).Run();
  return absl::OkStatus();
}

absl::Status NllBackwardSkeleton::EmitBody(const NllKey& key, const NllBackwardArguments<Emitted>& arguments,
                                           Emitter& e) const {
  BackwardEmission(key, arguments, e).Run();
  return absl::OkStatus();
}

constinit const PlannerFactory kNllLossPlanner = MakePlanner<NllPlanner>;
constinit const PlannerFactory kNllLossBackwardPlanner = MakePlanner<NllPlanner>;

}  // namespace xpud::kernels
