#include "kernels/families/ctc_loss.h"

#include <algorithm>

#include "kernels/families/planners.h"
#include "kernels/families/row_emission.h"
#include "kernels/families/slices.h"
#include "proto/base/status_macros.h"
#include "proto/ops/families/ctc_loss.h"

namespace xpud::kernels {

// ---- planning

namespace {

// `ctc`: a call of either direction.
template <typename Ctc>
CtcSequences<Planned> SequencesOf(const Ctc& ctc) {
  const Operand &probs = *ctc.log_probs, &targets = *ctc.targets, &shapes = *ctc.shapes;
  CtcSequences<Planned> sequences;
  sequences.probs = probs.data;
  sequences.labels = targets.sizes[0];
  // Kernels read a label even for a blank, so there must be one.
  sequences.targets = targets.sizes[0] > 0 ? targets.data : shapes.data;
  sequences.shapes = shapes.data;
  sequences.steps = probs.sizes[0];
  sequences.batch = probs.sizes[1];
  sequences.classes = probs.sizes[2];
  sequences.states = ctc.log_alpha->sizes[2];
  sequences.blank = ctc.blank;
  return sequences;
}

}  // namespace

absl::StatusOr<Readiness> CtcPlanner::Plan(const OpCall& call, Workspace workspace, LaunchList& launches) {
  return call.row->family == ops::Family::kCtcLoss ? PlanForward(call, launches)
                                                   : PlanBackward(call, workspace, launches);
}

void CtcPlanner::AddStates(const CtcKey& key, const Kernel* kernel, const CtcSequences<Planned>& sequences,
                           void* out, void* loss, LaunchList& launches) const {
  Launch& launch = launches.Add();
  launch.Reset(kernel, sequences.batch);
  if (cache_.target() != Target::kHost) launch.group_size = {kGpuLanes, 1, 1};
  CtcStatesArguments<Planned> arguments;
  arguments.sequences = sequences;
  arguments.out = out;
  arguments.loss = loss;
  PushArguments(key, arguments, launch);
}

absl::StatusOr<Readiness> CtcPlanner::PlanForward(const OpCall& call, LaunchList& launches) {
  const auto ctc = ops::Read<ops::CtcLossCall>(call);
  const CtcSequences<Planned> sequences = SequencesOf(ctc);
  if (sequences.batch == 0) return Readiness::kReady;
  const CtcKey key{.type = ctc.log_probs->dtype, .target = ctc.targets->dtype};
  ASSIGN_OR_RETURN(const Kernel* const kernel, cache_.Find(states_, key));
  if (kernel == nullptr) return Readiness::kCompiling;
  AddStates(key, kernel, sequences, ctc.log_alpha->data, ctc.loss->data, launches);
  return Readiness::kReady;
}

absl::StatusOr<Readiness> CtcPlanner::PlanBackward(const OpCall& call, Workspace workspace,
                                                   LaunchList& launches) {
  const auto ctc = ops::Read<ops::CtcLossBackwardCall>(call);
  const Operand& alpha = *ctc.log_alpha;
  const CtcSequences<Planned> sequences = SequencesOf(ctc);
  const int64_t items = sequences.batch * sequences.steps;
  if (items == 0) return Readiness::kReady;
  const CtcKey key{.type = ctc.log_probs->dtype, .target = ctc.targets->dtype, .beta = true};
  ASSIGN_OR_RETURN(const Kernel* const states, cache_.Find(states_, key));
  ASSIGN_OR_RETURN(const Kernel* const gradient, cache_.Find(gradient_, key));
  if (states == nullptr || gradient == nullptr) return Readiness::kCompiling;
  ASSIGN_OR_RETURN(void* const beta,
                   workspace(static_cast<size_t>(alpha.numel()) * ops::SizeOf(alpha.dtype)));
  AddStates(key, states, sequences, beta, nullptr, launches);

  const bool gpu = cache_.target() != Target::kHost;
  const float item = 20 * static_cast<float>(sequences.states) + 5 * static_cast<float>(sequences.classes);
  CtcGradientArguments<Planned> arguments;
  arguments.sequences = sequences;
  arguments.out = ctc.grad_input->data;
  arguments.gradient = ctc.grad_output->data;
  arguments.loss = ctc.loss->data;
  arguments.alpha = alpha.data;
  arguments.beta = beta;
  arguments.zero_infinity = ctc.zero_infinity ? 1 : 0;
  arguments.slice = gpu ? kGpuLanes : SliceOf(items, item, 1);
  Launch& launch = launches.Add();
  launch.Reset(gradient, CeilDiv(items, arguments.slice));
  if (gpu) launch.group_size = {kGpuLanes, 1, 1};
  PushArguments(key, arguments, launch);
  return Readiness::kReady;
}

// ---- emission

namespace {

using Value = llvm::Value*;
using Values = std::vector<llvm::Value*>;

class CtcEmission {
 public:
  CtcEmission(const CtcKey& key, const CtcSequences<Emitted>& sequences, Emitter& emitter)
      : key_(key), of_(sequences), e_(emitter), rows_(emitter), type_(ScalarOf(key.type)) {}

 protected:
  // A sequence: its steps, its states, and the position of its first label.
  struct Sequence {
    Value number, steps, states, first;
  };
  // The class of a state. `exists` is false for a label that is impossible.
  struct Label {
    Value index, exists;
  };

  Sequence SequenceOf(Value number) {
    const auto shape = [&](int64_t field) {
      Value const at = e_.Add(e_.Mul(number, e_.I64(3)), e_.I64(field));
      return e_.Load(ops::DType::kInt64, of_.shapes, at, Scalar::kI64);
    };
    Value const most = e_.ir().CreateLShr(e_.ir().CreateSub(of_.states, e_.I64(1)), e_.I64(1));
    Value const labels = Clamp(shape(1), e_.Min(most, of_.labels));
    return {number, Clamp(shape(0), of_.steps), e_.Add(e_.Mul(labels, e_.I64(2)), e_.I64(1)), shape(2)};
  }
  Value Clamp(Value value, Value most) {
    Value const positive = e_.ir().CreateICmpSGT(value, e_.I64(0));
    return e_.Min(e_.ir().CreateSelect(positive, value, e_.I64(0)), most);
  }

  Value IsLabel(Value state) { return e_.ir().CreateTrunc(state, e_.ir().getInt1Ty()); }

  // REQUIRES: state >= 0. The position is computed without a promise that it does not overflow.
  Label LabelOf(const Sequence& sequence, Value state) {
    auto& ir = e_.ir();
    Value const position = ir.CreateAdd(sequence.first, ir.CreateLShr(state, e_.I64(1)));
    Value const inside = e_.IsIndex(position, of_.labels);
    Value const value =
        e_.Load(key_.target, of_.targets, ir.CreateSelect(inside, position, e_.I64(0)), Scalar::kI64);
    Value const is_class = ir.CreateAnd(inside, e_.IsIndex(value, of_.classes));
    Value const label = ir.CreateSelect(is_class, value, e_.I64(0));
    return {ir.CreateSelect(IsLabel(state), label, of_.blank),
            ir.CreateOr(is_class, ir.CreateNot(IsLabel(state)))};
  }

  Value Infinity(bool negative) { return llvm::ConstantFP::getInfinity(e_.TypeOf(type_), negative); }
  Value Load(Value base, Value at) { return e_.Load(key_.type, base, at, type_); }
  void Store(Value base, Value at, Value value) { e_.Store(key_.type, base, at, value, type_); }
  // The logarithm of the probability of a label in step t.
  Value LogProbability(const Sequence& sequence, Value t, const Label& label) {
    Value const row = e_.Add(e_.Mul(t, of_.batch), sequence.number);
    Value const found = Load(of_.probs, e_.Add(e_.Mul(row, of_.classes), label.index));
    return e_.ir().CreateSelect(label.exists, found, Infinity(true));
  }
  Value StateOffset(const Sequence& sequence, Value t, Value state) {
    return e_.Add(e_.Mul(e_.Add(e_.Mul(sequence.number, of_.steps), t), of_.states), state);
  }

  Value Max(Value a, Value b) { return e_.ir().CreateSelect(e_.ir().CreateFCmpOGT(a, b), a, b); }
  // log(sum of exp(values)); -inf if all are.
  Value LogSum(const Values& values) {
    Value most = values[0];
    for (Value value : values) most = Max(value, most);
    Value const none = e_.ir().CreateFCmpOEQ(most, Infinity(true));
    Value const shift = e_.ir().CreateSelect(none, e_.Constant(type_, 0), most);
    Value sum = e_.Constant(type_, 0);
    for (Value value : values)
      sum = e_.ir().CreateFAdd(sum, rows_.Math("exp", e_.ir().CreateFSub(value, shift), type_));
    return e_.ir().CreateFAdd(rows_.Math("log", sum, type_), shift);
  }

  const CtcKey& key_;
  const CtcSequences<Emitted>& of_;
  Emitter& e_;
  RowEmission rows_;
  const Scalar type_;
};

class StatesEmission : public CtcEmission {
 public:
  StatesEmission(const CtcKey& key, const CtcStatesArguments<Emitted>& arguments, Emitter& emitter)
      : CtcEmission(key, arguments.sequences, emitter), args_(arguments) {}

  void Run() {
    const Sequence sequence = SequenceOf(e_.Group(0));
    e_.Loop(e_.I64(0), sequence.steps, e_.I64(1), [&](Value i) {
      Value const last = e_.ir().CreateSub(sequence.steps, e_.I64(1));
      EmitStep(sequence, i, key_.beta ? e_.ir().CreateSub(last, i) : i);
      e_.Barrier();
    });
    e_.Loop(sequence.steps, of_.steps, e_.I64(1), [&](Value t) {
      EachState([&](Value s) { Store(args_.out, StateOffset(sequence, t, s), Infinity(true)); });
    });
    if (key_.beta) return;
    e_.If(e_.ir().CreateICmpEQ(e_.Lane(), e_.I64(0)), [&] { EmitLoss(sequence); });
  }

 private:
  void EachState(const std::function<void(Value)>& body) {
    e_.Loop(e_.Lane(), of_.states, e_.Lanes(), body, Emitter::LoopKind::kParallel);
  }

  // Step number i, at time t. A state is reached from itself, from its neighbour, and, unless both are blanks
  // or the same label, from the one after that.
  void EmitStep(const Sequence& sequence, Value i, Value t) {
    auto& ir = e_.ir();
    Value const is_first = ir.CreateICmpEQ(i, e_.I64(0));
    Value const before =
        ir.CreateSelect(is_first, t, key_.beta ? e_.Add(t, e_.I64(1)) : ir.CreateSub(t, e_.I64(1)));
    Value const row = StateOffset(sequence, before, e_.I64(0));
    EachState([&](Value s) {
      Value const within = ir.CreateICmpSLT(s, sequence.states);
      const Label label = LabelOf(sequence, s);
      const auto from = [&](int64_t distance) { return Reachable(sequence, row, s, label, distance); };
      Value const reached = LogSum({from(0), from(1), from(2)});
      Value const edge = key_.beta ? ir.CreateSub(ir.CreateSub(sequence.states, e_.I64(1)), s) : s;
      Value const starts = ir.CreateICmpULT(edge, e_.I64(2));
      Value const start = ir.CreateSelect(starts, e_.Constant(type_, 0), Infinity(true));
      Value const sum =
          ir.CreateFAdd(ir.CreateSelect(is_first, start, reached), LogProbability(sequence, t, label));
      Store(args_.out, StateOffset(sequence, t, s), ir.CreateSelect(within, sum, Infinity(true)));
    });
  }

  // The value of the state `distance` before s (beta: after it) in `row`, or -inf if s is not reached from
  // it.
  Value Reachable(const Sequence& sequence, Value row, Value s, const Label& label, int64_t distance) {
    auto& ir = e_.ir();
    Value const at = ir.CreateAdd(s, e_.I64(key_.beta ? distance : -distance));
    Value inside = ir.CreateICmpULT(at, sequence.states);
    Value const safe = ir.CreateSelect(inside, at, e_.I64(0));
    if (distance == 2) {
      const Label other = LabelOf(sequence, safe);
      inside = ir.CreateAnd(inside, ir.CreateAnd(IsLabel(s), ir.CreateICmpNE(label.index, other.index)));
    }
    return ir.CreateSelect(inside, Load(args_.out, e_.Add(row, safe)), Infinity(true));
  }

  // The last two states end a sequence. One without steps has only the empty sequence of labels.
  void EmitLoss(const Sequence& sequence) {
    auto& ir = e_.ir();
    Value const empty = ir.CreateICmpEQ(sequence.steps, e_.I64(0));
    Value const no_labels = ir.CreateICmpEQ(sequence.states, e_.I64(1));
    Value const nothing = ir.CreateSelect(no_labels, e_.Constant(type_, 0), Infinity(false));
    Store(args_.loss, sequence.number, nothing);
    e_.If(ir.CreateNot(empty), [&] {
      Value const last = StateOffset(sequence, ir.CreateSub(sequence.steps, e_.I64(1)),
                                     ir.CreateSub(sequence.states, e_.I64(1)));
      Value const before = ir.CreateSelect(no_labels, last, ir.CreateSub(last, e_.I64(1)));
      Value const second = ir.CreateSelect(no_labels, Infinity(true), Load(args_.out, before));
      Store(args_.loss, sequence.number, ir.CreateFNeg(LogSum({Load(args_.out, last), second})));
    });
  }

  const CtcStatesArguments<Emitted>& args_;
};

class GradientEmission : public CtcEmission {
 public:
  GradientEmission(const CtcKey& key, const CtcGradientArguments<Emitted>& arguments, Emitter& emitter)
      : CtcEmission(key, arguments.sequences, emitter), args_(arguments) {}

  void Run() {
    Value const begin = e_.Mul(e_.Group(0), args_.slice);
    Value const end = e_.Min(e_.Add(begin, args_.slice), e_.Mul(of_.steps, of_.batch));
    e_.Loop(e_.Add(begin, e_.Lane()), end, e_.Lanes(), [&](Value item) { EmitItem(item); });
  }

 private:
  // Item t * batch + n.
  void EmitItem(Value item) {
    auto& ir = e_.ir();
    const Sequence sequence = SequenceOf(ir.CreateURem(item, of_.batch));
    Value const t = ir.CreateUDiv(item, of_.batch), base = e_.Mul(item, of_.classes);
    Value const loss = Load(args_.loss, sequence.number);
    Value const infinite = ir.CreateFCmpOEQ(loss, Infinity(false));
    Value const dropped = ir.CreateAnd(infinite, ir.CreateICmpNE(args_.zero_infinity, e_.I64(0)));
    Value const counts = ir.CreateAnd(ir.CreateICmpSLT(t, sequence.steps), ir.CreateNot(dropped));
    Value const initial = ir.CreateSelect(counts, Infinity(true), e_.Constant(type_, 0));
    EachClass([&](Value c) { Store(args_.out, e_.Add(base, c), initial); });
    e_.If(counts, [&] {
      e_.Loop(e_.I64(0), sequence.states, e_.I64(1), [&](Value s) { AddState(sequence, t, base, s); });
      Value const gradient = Load(args_.gradient, sequence.number);
      EachClass([&](Value c) {
        Value const at = e_.Add(base, c), log_probability = Load(of_.probs, at);
        Value const share = ir.CreateFSub(ir.CreateFAdd(Load(args_.out, at), loss), log_probability);
        Value const difference =
            ir.CreateFSub(rows_.Math("exp", log_probability, type_), rows_.Math("exp", share, type_));
        Store(args_.out, at, ir.CreateFMul(difference, gradient));
      });
    });
  }

  void EachClass(const std::function<void(Value)>& body) {
    e_.Loop(e_.I64(0), of_.classes, e_.I64(1), body, Emitter::LoopKind::kParallel);
  }

  // Adds the probability of all ways through state s to its class, whose sum is in the output.
  void AddState(const Sequence& sequence, Value t, Value base, Value s) {
    const Label label = LabelOf(sequence, s);
    Value const state = StateOffset(sequence, t, s), at = e_.Add(base, label.index);
    Value const both = e_.ir().CreateFAdd(Load(args_.alpha, state), Load(args_.beta, state));
    Value const sum = LogSum({Load(args_.out, at), e_.ir().CreateSelect(label.exists, both, Infinity(true))});
    Store(args_.out, at, sum);
  }

  const CtcGradientArguments<Emitted>& args_;
};

}  // namespace

absl::Status CtcStatesSkeleton::EmitBody(const CtcKey& key, const CtcStatesArguments<Emitted>& arguments,
                                         Emitter& e) const {
  StatesEmission(key, arguments, e).Run();
  return absl::OkStatus();
}

absl::Status CtcGradientSkeleton::EmitBody(const CtcKey& key, const CtcGradientArguments<Emitted>& arguments,
                                           Emitter& e) const {
  GradientEmission(key, arguments, e).Run();
  return absl::OkStatus();
}

constinit const PlannerFactory kCtcLossPlanner = MakePlanner<CtcPlanner>;
constinit const PlannerFactory kCtcLossBackwardPlanner = MakePlanner<CtcPlanner>;

}  // namespace xpud::kernels
