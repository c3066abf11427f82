#include "kernels/families/fused.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <utility>
#include <vector>

#include "kernels/families/line_emission.h"
#include "kernels/families/planners.h"
#include "kernels/families/slices.h"
#include "proto/base/status_macros.h"
#include "proto/ops/families/fused.h"
#include "proto/ops/family.h"

namespace xpud::kernels {

using ops::Family;

// ---- planning

void FusedPlanner::SetAttributes(const OpCall& call, FusedKey& key, Roles& roles) {
  const auto set = [&](std::initializer_list<double> numbers, double weight_decay, bool maximize) {
    std::ranges::transform(numbers, roles.numbers.begin(), ops::Number::Real);
    key.decay = weight_decay != 0;
    key.maximize = maximize;
  };
  if (key.family() == Family::kFusedAdam) {
    const auto adam = ops::Read<ops::FusedAdamCall>(call);
    set({adam.lr, adam.beta1, adam.beta2, adam.weight_decay, adam.eps}, adam.weight_decay, adam.maximize);
  } else if (key.family() == Family::kFusedSgd) {
    const auto sgd = ops::Read<ops::FusedSgdCall>(call);
    set({sgd.lr, sgd.weight_decay, sgd.momentum, sgd.dampening}, sgd.weight_decay, sgd.maximize);
    key.nesterov = sgd.nesterov;
    key.first = sgd.is_first_step;
  } else {
    const auto adagrad = ops::Read<ops::FusedAdagradCall>(call);
    set({adagrad.lr, adagrad.lr_decay, adagrad.weight_decay, adagrad.eps}, adagrad.weight_decay,
        adagrad.maximize);
  }
}

// The key of the call's tensors, but for their type. The order of lists is that of
// proto/ops/families/fused.h.
FusedKey FusedPlanner::KeyOf(const OpCall& call, const ops::OperandLists& lists, Roles& roles) {
  FusedKey key;
  key.row = call.row;
  key.small = lists.size() <= static_cast<size_t>(kSmallPack);
  if (key.family() == Family::kUnscale) {
    roles.found_inf = 1, roles.grad_scale = 2;
    key.found_inf = key.grad_scale = true;
    return key;
  }
  SetAttributes(call, key, roles);
  const bool adam = key.family() == Family::kFusedAdam, sgd = key.family() == Family::kFusedSgd;
  const size_t unscaled = adam ? 4 : 2, grads = unscaled + 1, scalars = lists.lists() - 3;
  key.state = adam ? lists.length(3) > 0 : sgd && lists.length(1) > 0;
  key.first &= key.state;
  key.lr_tensor = lists.length(scalars) > 0;
  key.grad_scale = lists.length(scalars + 1) > 0;
  key.found_inf = lists.length(scalars + 2) > 0;
  if (key.lr_tensor) key.lr = lists.At(scalars, 0).dtype;
  roles.lr = scalars, roles.grad_scale = scalars + 1, roles.found_inf = scalars + 2;
  size_t slot = 0;
  for (int s = 0; s <= key.states(); ++s) roles.slots[slot++] = static_cast<size_t>(s);
  roles.slots[slot++] = grads;
  if (key.grad_scale) roles.slots[slot++] = unscaled;
  if (key.has_steps()) roles.slots[slot++] = grads + 1;
  return key;
}

void FusedPlanner::SetScalars(const ops::OperandLists& lists, const Roles& roles) {
  if (key_.lr_tensor) arguments_.lr = lists.At(roles.lr, 0).data;
  if (key_.grad_scale) arguments_.grad_scale = lists.At(roles.grad_scale, 0).data;
  if (key_.found_inf) arguments_.found_inf = lists.At(roles.found_inf, 0).data;
  for (size_t n = 0; n < static_cast<size_t>(key_.numbers()); ++n) arguments_.numbers[n] = &roles.numbers[n];
}

absl::StatusOr<Readiness> FusedPlanner::Plan(const OpCall& call, Workspace, LaunchList& launches) {
  const ops::OperandLists lists(call);
  Roles roles;
  FusedKey key = KeyOf(call, lists, roles);
  readiness_ = Readiness::kReady;
  tensors_ = 0;
  for (size_t i = 0; i < lists.size(); ++i) {
    const Operand& self = lists.At(0, i);
    if (self.numel() == 0) continue;
    key.dtype = self.dtype;
    written_.clear(), read_.clear();
    for (size_t s = 0; s < static_cast<size_t>(key.slots()); ++s) {
      const size_t list = roles.slots[s];
      const bool output = list < ops::DescriptorOf(*call.row).outputs.size();
      (output ? written_ : read_).push_back(lists.At(list, i));
    }
    const bool joins =
        tensors_ == 0 || (key == key_ && tensors_ < key_.capacity() && ranges_.Fits(written_, read_));
    if (!joins) RETURN_IF_ERROR(Flush(launches));
    key_ = key;
    SetScalars(lists, roles);
    Join(lists, roles, i);
  }
  RETURN_IF_ERROR(Flush(launches));
  return readiness_;
}

void FusedPlanner::Join(const ops::OperandLists& lists, const Roles& roles, size_t index) {
  const auto t = static_cast<size_t>(tensors_++), slots = static_cast<size_t>(key_.slots());
  for (size_t s = 0; s < slots; ++s) {
    const void* const data = arguments_.pack.pointers[s][t] = lists.At(roles.slots[s], index).data;
    const bool step = key_.has_steps() && s + 1 == slots;
    if (!step) addresses_ |= reinterpret_cast<uintptr_t>(data);
  }
  const int64_t count = arguments_.pack.counts[t] = lists.At(0, index).numel();
  elements_ += count;
  units_ += CeilDiv(count, UnitOf(cache_.target()));
  ranges_.Add(written_, read_);
}

int FusedPlanner::BlockOf() const {
  if (cache_.target() != Target::kNvptx || addresses_ % kBlockBytes != 0) return 1;
  return std::min(4, kBlockBytes / static_cast<int>(ops::SizeOf(key_.dtype)));
}

absl::Status FusedPlanner::Flush(LaunchList& launches) {
  if (tensors_ == 0) return absl::OkStatus();
  FusedKey key = key_;
  key.block_log2 = std::countr_zero(static_cast<unsigned>(BlockOf()));
  const float streams = static_cast<float>(2 * key.states() + 3) * static_cast<float>(ops::SizeOf(key.dtype));
  const PackSize size = {.target = cache_.target(),
                         .tensors = std::exchange(tensors_, 0),
                         .slots = key.slots(),
                         .elements = std::exchange(elements_, 0),
                         .units = std::exchange(units_, 0),
                         .unit = UnitOf(cache_.target()),
                         .nanoseconds = streams / kBytesPerNanosecond + 0.2f};
  addresses_ = 0;
  ranges_.Clear();
  ASSIGN_OR_RETURN(const Kernel* const kernel, cache_.Find(skeleton_, key));
  if (kernel == nullptr) {
    readiness_ = Readiness::kCompiling;
    return absl::OkStatus();
  }
  Launch& launch = launches.Add();
  launch.Reset(kernel, 1);
  FinishPack(size, arguments_.pack, launch);
  PushArguments(key, arguments_, launch);
  return absl::OkStatus();
}

// ---- emission

namespace {

class FusedEmission : public LineEmission {
 public:
  FusedEmission(const FusedKey& key, const FusedArguments<Emitted>& arguments, Emitter& emitter)
      : LineEmission(emitter, StreamsOf(key), ScalarOf(key.dtype), 1 << key.block_log2),
        key_(key),
        args_(arguments),
        compute_(ScalarOf(key.dtype)),
        pack_(emitter, arguments.pack, key.slots(), key.capacity()) {}

  void Run() {
    if (!key_.found_inf || key_.family() == Family::kUnscale) return EmitLines(pack_);
    Value const found = e_.Load(ops::DType::kFloat32, args_.found_inf, e_.I64(0), Scalar::kF32);
    e_.If(e_.ir().CreateFCmpUNE(found, e_.Constant(Scalar::kF32, 1)), [&] { EmitLines(pack_); });
  }

 private:
  static std::vector<Stream> StreamsOf(const FusedKey& key) {
    std::vector<Stream> streams;
    size_t slot = 0;
    for (int s = 0; s <= key.states(); ++s)
      streams.push_back({.slot = slot++, .dtype = key.dtype, .load = s == 0 || !key.first, .store = true});
    if (key.family() == Family::kUnscale) return streams;
    streams.push_back({.slot = slot++, .dtype = key.dtype, .load = true});
    if (key.grad_scale) streams.push_back({.slot = slot++, .dtype = key.dtype, .store = true});
    return streams;
  }

  llvm::IRBuilder<>& ir() { return e_.ir(); }
  Value Narrow(Value wide) { return e_.Convert(wide, Scalar::kF64, compute_); }
  Value One() { return e_.Constant(Scalar::kF64, 1); }
  Value Scalar32(Value address) { return e_.Load(ops::DType::kFloat32, address, e_.I64(0), Scalar::kF64); }
  Value Root(Value x) { return ir().CreateUnaryIntrinsic(llvm::Intrinsic::sqrt, x); }
  // x + y z
  Value Plus(Value x, Value y, Value z) { return ir().CreateFAdd(x, ir().CreateFMul(y, z)); }
  Value Minus(Value x, Value y, Value z) { return ir().CreateFSub(x, ir().CreateFMul(y, z)); }

  void Begin(const PackEmission::Slice& slice) override {
    if (key_.grad_scale) scale_ = Narrow(Scalar32(args_.grad_scale));
    if (key_.family() == Family::kUnscale) return;
    Value const lr =
        key_.lr_tensor ? e_.Load(key_.lr, args_.lr, e_.I64(0), Scalar::kF64) : args_.numbers[0].value;
    Value const step = key_.has_steps() ? Scalar32(slice.slots.back()) : nullptr;
    if (key_.family() == Family::kFusedAdam) return BeginAdam(lr, step);
    if (key_.family() == Family::kFusedAdagrad) return BeginAdagrad(lr, step);
    rate_ = Narrow(lr);
    decay_ = Narrow(args_.numbers[1]);
    keep_ = Narrow(args_.numbers[2]);
    add_ = Narrow(ir().CreateFSub(One(), args_.numbers[3]));
  }
  void BeginAdam(Value lr, Value step) {
    Value const beta1 = args_.numbers[1], beta2 = args_.numbers[2];
    const auto correction = [&](Value beta) {
      Value const operands[] = {beta, step};
      return ir().CreateFSub(One(), e_.CallMath("pow_f64", e_.TypeOf(Scalar::kF64), operands));
    };
    rate_ = Narrow(ir().CreateFDiv(lr, correction(beta1)));
    root_ = Narrow(Root(correction(beta2)));
    keep_ = Narrow(beta1), add_ = Narrow(ir().CreateFSub(One(), beta1));
    keep_square_ = Narrow(beta2), add_square_ = Narrow(ir().CreateFSub(One(), beta2));
    const bool decoupled = key_.row->formula == "decoupled";
    decay_ = Narrow(decoupled ? ir().CreateFMul(lr, args_.numbers[3]) : args_.numbers[3].value);
    eps_ = Narrow(args_.numbers[4]);
  }
  void BeginAdagrad(Value lr, Value step) {
    Value const before = ir().CreateFSub(step, One());
    rate_ = Narrow(ir().CreateFDiv(lr, Plus(One(), before, args_.numbers[1])));
    decay_ = Narrow(args_.numbers[2]);
    eps_ = Narrow(args_.numbers[3]);
  }

  std::vector<Typed> Element(const Values& loaded) override {
    if (key_.family() == Family::kUnscale) return Unscale(loaded[0]);
    Value const unscaled = key_.grad_scale ? ir().CreateFDiv(loaded.back(), scale_) : loaded.back();
    Value const gradient = key_.maximize ? ir().CreateFNeg(unscaled) : unscaled;
    Values results = key_.family() == Family::kFusedAdam  ? Adam(loaded, gradient)
                     : key_.family() == Family::kFusedSgd ? Sgd(loaded, gradient)
                                                          : Adagrad(loaded, gradient);
    if (key_.grad_scale) results.push_back(unscaled);
    std::vector<Typed> typed;
    for (Value result : results) typed.push_back({result, compute_});
    return typed;
  }

  std::vector<Typed> Unscale(Value gradient) {
    Value const magnitude = ir().CreateUnaryIntrinsic(llvm::Intrinsic::fabs, gradient);
    reported_ = ir().CreateFCmpUGE(magnitude, e_.Constant(compute_, std::numeric_limits<double>::infinity()));
    return {{ir().CreateFMul(gradient, scale_), compute_}};
  }
  Value Reported() override { return reported_; }
  void EmitReport(Value any) override {
    e_.If(any, [&] {
      e_.Store(ops::DType::kFloat32, args_.found_inf, e_.I64(0), e_.Constant(Scalar::kF32, 1), Scalar::kF32);
    });
  }

  Values Adam(const Values& loaded, Value g) {
    const bool decoupled = key_.row->formula == "decoupled";
    Value p = loaded[0];
    if (key_.decay && decoupled) p = Minus(p, decay_, p);
    if (key_.decay && !decoupled) g = Plus(g, decay_, p);
    Value const mean = Plus(ir().CreateFMul(keep_, loaded[1]), add_, g);
    Value const square = Plus(ir().CreateFMul(keep_square_, loaded[2]), add_square_, ir().CreateFMul(g, g));
    Value largest = square;
    if (key_.state) {
      largest = ir().CreateSelect(ir().CreateFCmpOLT(loaded[3], square), square, loaded[3]);
      largest = ir().CreateSelect(ir().CreateFCmpUNO(square, square), square, largest);
    }
    Value const divisor = ir().CreateFAdd(ir().CreateFDiv(Root(largest), root_), eps_);
    Values results = {ir().CreateFSub(p, ir().CreateFDiv(ir().CreateFMul(rate_, mean), divisor)), mean,
                      square};
    if (key_.state) results.push_back(largest);
    return results;
  }
  Values Sgd(const Values& loaded, Value g) {
    Value const p = loaded[0];
    if (key_.decay) g = Plus(g, decay_, p);
    if (!key_.state) return {Minus(p, rate_, g)};
    Value const momentum = key_.first ? g : Plus(ir().CreateFMul(keep_, loaded[1]), add_, g);
    Value const direction = key_.nesterov ? Plus(g, keep_, momentum) : momentum;
    return {Minus(p, rate_, direction), momentum};
  }
  Values Adagrad(const Values& loaded, Value g) {
    Value const p = loaded[0];
    if (key_.decay) g = Plus(g, decay_, p);
    Value const sum = Plus(loaded[1], g, g);
    Value const divisor = ir().CreateFAdd(Root(sum), eps_);
    return {ir().CreateFSub(p, ir().CreateFDiv(ir().CreateFMul(rate_, g), divisor)), sum};
  }

  const FusedKey& key_;
  const FusedArguments<Emitted>& args_;
  const Scalar compute_;
  PackEmission pack_;
  // Of the slice, in the type of elements. `decay_`: decoupled, times lr. `keep_`, `add_`: of a running mean.
  Value scale_ = nullptr, rate_ = nullptr, decay_ = nullptr, eps_ = nullptr, root_ = nullptr;
  Value keep_ = nullptr, add_ = nullptr, keep_square_ = nullptr, add_square_ = nullptr;
  Value reported_ = nullptr;
};

}  // namespace

absl::Status FusedSkeleton::EmitBody(const FusedKey& key, const FusedArguments<Emitted>& arguments,
                                     Emitter& e) const {
  FusedEmission(key, arguments, e).Run();
  return absl::OkStatus();
}

constinit const PlannerFactory kFusedAdamPlanner = MakePlanner<FusedPlanner>;
constinit const PlannerFactory kFusedSgdPlanner = MakePlanner<FusedPlanner>;
constinit const PlannerFactory kFusedAdagradPlanner = MakePlanner<FusedPlanner>;
constinit const PlannerFactory kUnscalePlanner = MakePlanner<FusedPlanner>;

}  // namespace xpud::kernels
