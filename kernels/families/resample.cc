#include "kernels/families/resample.h"

#include <algorithm>
#include <cmath>

#include "kernels/families/slices.h"
#include "kernels/families/window_emission.h"
#include "proto/base/status_macros.h"
#include "proto/ops/families/resample.h"

namespace xpud::kernels {

using ops::ResampleKind;

// ---- planning

namespace {

constexpr int kUnrolledTaps = 4;
constexpr size_t kAlignment = 256;

ops::DType TypeOfReal(Scalar real) {
  return real == Scalar::kF64 ? ops::DType::kFloat64 : ops::DType::kFloat32;
}

size_t AlignUp(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

// Returns a tensor without gaps whose dimensions have the order in memory of `like`.
Operand DenseLike(const Operand& like, const Operand& sizes, ops::DType type) {
  std::array<size_t, ops::kMaxRank> order{};
  for (size_t d = 0; d < like.rank; ++d) order[d] = d;
  std::sort(order.begin(), order.begin() + like.rank, [&](size_t a, size_t b) {
    return like.strides[a] != like.strides[b] ? like.strides[a] > like.strides[b] : a < b;
  });
  Operand dense = sizes;
  dense.dtype = type;
  int64_t stride = 1;
  for (size_t i = like.rank; i-- > 0;) {
    dense.strides[order[i]] = stride;
    stride *= sizes.sizes[order[i]];
  }
  return dense;
}

// Returns the map's spatial dimensions that are not copied, the one that shrinks the tensor most first.
std::vector<size_t> OrderOf(const ops::ResampleSpec& spec) {
  std::vector<size_t> order;
  for (auto d = static_cast<size_t>(spec.spatial); d-- > 0;) {
    if (!IsIdentity(spec, spec.windows[d])) order.push_back(d);
  }
  if (order.empty()) order.push_back(static_cast<size_t>(spec.spatial - 1));
  const auto growth = [&](size_t d) {
    const ops::Window& w = spec.windows[d];
    const auto in = static_cast<double>(std::max<int64_t>(w.in, 1));
    const auto out = static_cast<double>(std::max<int64_t>(w.out, 1));
    return spec.transposed ? in / out : out / in;
  };
  std::sort(order.begin(), order.end(),
            [&](size_t a, size_t b) { return growth(a) != growth(b) ? growth(a) < growth(b) : a > b; });
  return order;
}

Launch& Begin(LaunchList& launches, const Kernel* kernel, int64_t groups, bool gpu) {
  Launch& launch = launches.Add();
  launch.Reset(kernel, groups);
  if (gpu) launch.group_size = {kGpuLanes, 1, 1};
  return launch;
}

}  // namespace

struct ResamplePlanner::Pass {
  Pass(const ops::ResampleSpec& spec, const ops::Window& along, const Operand& from, const Operand& to,
       size_t d)
      : window(along),
        reach(ReachOf(spec, along)),
        support(SupportOf(spec, along)),
        in(from),
        out(to),
        dim(d),
        taps(TapsOf(spec, along)),
        rows(to.sizes[d]) {}

  void SetKeys(const ops::ResampleSpec& spec, Scalar real, bool gpu);
  size_t positions_bytes() const { return AlignUp(static_cast<size_t>(taps * rows) * sizeof(int32_t)); }
  size_t weights_bytes() const { return AlignUp(static_cast<size_t>(taps * rows) * sizeof(double)); }

  ops::Window window;
  ops::Reach reach;
  double support = 1;
  Operand in, out;
  size_t dim = 0;
  int64_t taps = 1, rows = 1;
  Layout items;
  ResampleTableKey table_key;
  ResamplePassKey key;
  const Kernel *table = nullptr, *pass = nullptr;
  std::byte *positions = nullptr, *weights = nullptr;
};

void ResamplePlanner::Pass::SetKeys(const ops::ResampleSpec& spec, Scalar real, bool gpu) {
  table_key = {.kind = spec.kind,
               .real = real,
               .transposed = spec.transposed,
               .half_pixel = spec.half_pixel,
               .include_padding = spec.include_padding};
  Operand shape = out, from = in;
  shape.sizes[dim] = from.sizes[dim] = 1;
  items = Layout::Over(shape);
  items.AddOperand(shape);
  items.AddOperand(from);
  items.Collapse(/*may_permute=*/true);
  key.copies = CopiesElements(spec);
  key.input = key.copies ? BitsOf(ops::SizeOf(in.dtype)) : in.dtype;
  key.output = key.copies ? key.input : out.dtype;
  key.real = key.copies ? ScalarOf(key.input) : real;
  key.adjacent = in.strides[dim] == 1;
  const bool contiguous =
      items.AccessOf(0) == Access::kContiguous && items.AccessOf(1) == Access::kContiguous;
  if (contiguous && items.inner() >= (gpu ? 2 : 8)) {
    key.form = PassForm::kItems;
  } else if (out.strides[dim] == 1 && !gpu) {
    key.form = PassForm::kOutputs;
  }
  key.taps = taps <= kUnrolledTaps ? static_cast<int>(taps) : 0;
  key.rank = items.rank;
}

absl::StatusOr<bool> ResamplePlanner::FindKernels(Pass& pass) {
  ASSIGN_OR_RETURN(pass.table, cache_.Find(table_, pass.table_key));
  ASSIGN_OR_RETURN(pass.pass, cache_.Find(pass_, pass.key));
  return pass.table != nullptr && pass.pass != nullptr;
}

absl::StatusOr<Readiness> ResamplePlanner::Plan(const OpCall& call, Workspace workspace,
                                                LaunchList& launches) {
  const auto resample = ops::Read<ops::ResampleCall>(call);
  const Operand &out = *resample.out, &self = *resample.self;
  ASSIGN_OR_RETURN(const ops::ResampleSpec spec, ops::ResampleOf(call));
  for (int d = 0; d < out.rank; ++d)
    if (out.sizes[d] == 0) return Readiness::kReady;
  const bool gpu = cache_.target() != Target::kHost;
  const Scalar real = AccumulateOf(self.dtype) == Scalar::kF64 ? Scalar::kF64 : Scalar::kF32;
  const std::vector<size_t> order = OrderOf(spec);
  std::vector<Pass> passes;
  std::vector<size_t> temporaries;  // bytes
  Operand from = self;
  bool ready = true;
  for (size_t i = 0; i < order.size(); ++i) {
    const size_t dim = out.rank - static_cast<size_t>(spec.spatial) + order[i];
    Operand to = from;
    to.sizes[dim] = out.sizes[dim];
    if (i + 1 == order.size()) {
      to = out;
    } else {
      to = DenseLike(out, to, CopiesElements(spec) ? self.dtype : TypeOfReal(real));
      temporaries.push_back(AlignUp(static_cast<size_t>(to.numel()) * ops::SizeOf(to.dtype)));
    }
    Pass& pass = passes.emplace_back(spec, spec.windows[order[i]], from, to, dim);
    pass.SetKeys(spec, real, gpu);
    ASSIGN_OR_RETURN(const bool found, FindKernels(pass));
    ready &= found;
    from = to;
  }
  if (!ready) return Readiness::kCompiling;
  size_t bytes = 0;
  for (const size_t each : temporaries) bytes += each;
  for (const Pass& pass : passes) bytes += pass.positions_bytes() + pass.weights_bytes();
  ASSIGN_OR_RETURN(void* const memory, workspace(bytes));
  auto* next = static_cast<std::byte*>(memory);
  for (size_t i = 0; i < passes.size(); ++i) {
    Pass& pass = passes[i];
    pass.positions = next;
    pass.weights = next + pass.positions_bytes();
    next = pass.weights + pass.weights_bytes();
    if (i < temporaries.size()) {
      pass.out.data = passes[i + 1].in.data = next;
      next += temporaries[i];
    }
    AddLaunches(pass, launches);
  }
  return Readiness::kReady;
}

void ResamplePlanner::AddLaunches(const Pass& pass, LaunchList& launches) {
  const bool gpu = cache_.target() != Target::kHost;
  constexpr float kTapNanoseconds = 4, kElementNanoseconds = 0.2f, kGatheredNanoseconds = 1;
  const auto taps = static_cast<float>(pass.taps);
  const auto number = [](double value) { return ops::Number::Real(value); };
  // A table of all outputs for each element needs no lower bound.
  const double inverse = pass.taps >= pass.window.out ? 0 : 1 / pass.window.scale;
  const ops::Number scale = number(pass.window.scale), support = number(pass.support),
                    reciprocal = number(inverse), low = number(pass.reach.low),
                    shift = number(pass.reach.shift);
  const int64_t table_slice = gpu ? kGpuLanes : SliceOf(pass.rows, kTapNanoseconds * taps, 1);
  ResampleTableArguments<Planned> table{.positions = pass.positions,
                                        .weights = pass.weights,
                                        .in = pass.window.in,
                                        .out = pass.window.out,
                                        .kernel = pass.window.kernel,
                                        .stride = pass.window.stride,
                                        .padding = pass.window.padding,
                                        .taps = pass.taps,
                                        .slice = table_slice,
                                        .margin = 1 + (pass.window.out >> 22),
                                        .scale = &scale,
                                        .support = &support,
                                        .inverse = &reciprocal,
                                        .low = &low,
                                        .shift = &shift};
  PushArguments(pass.table_key, table, Begin(launches, pass.table, CeilDiv(pass.rows, table_slice), gpu));

  const int64_t elements = pass.items.numel() * pass.rows;
  const bool items = pass.key.form == PassForm::kItems;
  const int64_t of_unit = items ? pass.items.inner() : pass.rows;
  const float nanoseconds =
      static_cast<float>(of_unit) * taps * (items ? kElementNanoseconds : kGatheredNanoseconds);
  ResamplePassArguments<Planned> arguments;
  arguments.out = pass.out.data;
  arguments.in = pass.in.data;
  arguments.positions = pass.positions;
  arguments.weights = pass.weights;
  SetSpace(pass.items, arguments.items);
  arguments.out_stride = pass.out.strides[pass.dim];
  arguments.in_stride = pass.in.strides[pass.dim];
  arguments.rows = pass.rows;
  arguments.taps = pass.taps;
  arguments.count = gpu ? elements : elements / of_unit;
  arguments.slice = gpu ? kGpuLanes : SliceOf(arguments.count, nanoseconds, 1);
  PushArguments(pass.key, arguments,
                Begin(launches, pass.pass, CeilDiv(arguments.count, arguments.slice), gpu));
}

// ---- emission

namespace {

using Value = llvm::Value*;
using Values = std::vector<llvm::Value*>;

class TableEmission : WindowEmission {
 public:
  TableEmission(const ResampleTableKey& key, const ResampleTableArguments<Emitted>& arguments,
                Emitter& emitter)
      : WindowEmission(emitter), key_(key), args_(arguments), e_(emitter) {}

  void Run() {
    Value const rows = key_.transposed ? args_.in : args_.out;
    Value const begin = e_.Mul(e_.Group(0), args_.slice);
    e_.Loop(e_.Add(begin, e_.Lane()), Min(e_.Add(begin, args_.slice), rows), e_.Lanes(), [&](Value row) {
      const auto store = [&](Value tap, Value inside, Value position, Value weight) {
        Value const at = e_.Add(e_.Mul(tap, rows), row);
        e_.Store(ops::DType::kInt32, args_.positions, at, e_.ir().CreateSelect(inside, position, e_.I64(-1)),
                 Scalar::kI64);
        e_.StoreRaw(args_.weights, at, e_.ir().CreateSelect(inside, weight, Real(0)));
      };
      if (key_.transposed) return EmitReaders(row, store);
      const Taps taps = TapsOf(row);
      e_.Loop(e_.I64(0), args_.taps, e_.I64(1), [&](Value tap) {
        Value const inside = e_.ir().CreateICmpSLT(tap, taps.count);
        store(tap, inside, Add(taps.first, tap), taps.weight(tap));
      });
    });
  }

 private:
  // The inputs of an output: `count` from `first` on.
  struct Taps {
    Value first, count;
    std::function<Value(Value)> weight;  // of number `tap`
  };

  Value Real(double value) { return e_.Constant(key_.real, value); }
  Value ToReal(Value integer) { return e_.Convert(integer, Scalar::kI64, key_.real); }
  Value Floor(Value real) { return e_.ir().CreateUnaryIntrinsic(llvm::Intrinsic::floor, real); }
  Value ToInteger(Value real) { return e_.Convert(real, key_.real, Scalar::kI64); }
  Value FAdd(Value a, Value b) { return e_.ir().CreateFAdd(a, b); }
  Value FSub(Value a, Value b) { return e_.ir().CreateFSub(a, b); }
  Value FMul(Value a, Value b) { return e_.ir().CreateFMul(a, b); }
  Value FMax(Value a, Value b) { return e_.ir().CreateSelect(e_.ir().CreateFCmpOGT(a, b), a, b); }
  Value FMin(Value a, Value b) { return e_.ir().CreateSelect(e_.ir().CreateFCmpOLT(a, b), a, b); }
  Value Abs(Value real) { return e_.ir().CreateUnaryIntrinsic(llvm::Intrinsic::fabs, real); }

  // Stores the outputs that read input `row`.
  void EmitReaders(Value row, const std::function<void(Value, Value, Value, Value)>& store) {
    Value const first = FirstReader(row);
    e_.Loop(e_.I64(0), args_.taps, e_.I64(1), [&](Value tap) {
      Value output = Add(first, tap), inside = e_.ir().getTrue();
      if (key_.kind == ResampleKind::kReflect) output = Mirror(row, tap, inside);
      inside = e_.ir().CreateAnd(inside, e_.IsIndex(output, args_.out));
      const Taps taps = TapsOf(e_.ir().CreateSelect(inside, output, e_.I64(0)));
      Value const own = Sub(row, taps.first);
      inside = e_.ir().CreateAnd(inside, e_.IsIndex(own, taps.count));
      store(tap, inside, output, taps.weight(e_.ir().CreateSelect(inside, own, e_.I64(0))));
    });
  }

  // Returns a lower bound on the outputs that read input `row`.
  Value FirstReader(Value row) {
    switch (key_.kind) {
      case ResampleKind::kAverage:
        return DivideUp(Add(Sub(Add(row, args_.padding), args_.kernel), e_.I64(1)), args_.stride);
      case ResampleKind::kAdaptive:
        return Divide(e_.Mul(row, args_.out), args_.in);
      case ResampleKind::kReflect:
        return e_.I64(0);
      case ResampleKind::kReplicate:
        return UnlessFirst(row, Max(Add(row, args_.padding), e_.I64(0)));
      default:
        break;
    }
    Value const position = FAdd64(e_.Convert(row, Scalar::kI64, Scalar::kF64), args_.low);
    Value const reader = e_.ir().CreateFSub(e_.ir().CreateFMul(position, args_.inverse), args_.shift);
    Value const whole =
        e_.Convert(e_.ir().CreateUnaryIntrinsic(llvm::Intrinsic::floor, reader), Scalar::kF64, Scalar::kI64);
    return UnlessFirst(row, Max(Sub(whole, args_.margin), e_.I64(0)));
  }
  Value FAdd64(Value a, Value b) { return e_.ir().CreateFAdd(a, b); }
  Value UnlessFirst(Value row, Value first) {
    return e_.ir().CreateSelect(e_.ir().CreateICmpEQ(row, e_.I64(0)), e_.I64(0), first);
  }

  // Returns the output where element `row` is (tap 0), or its image before (1) or after the input (2).
  Value Mirror(Value row, Value tap, Value& exists) {
    Value const last = Sub(args_.in, e_.I64(1));
    Value const is_before = e_.ir().CreateICmpEQ(tap, e_.I64(1));
    Value const is_after = e_.ir().CreateICmpEQ(tap, e_.I64(2));
    Value const on_border =
        e_.ir().CreateOr(e_.ir().CreateAnd(is_before, e_.ir().CreateICmpEQ(row, e_.I64(0))),
                         e_.ir().CreateAnd(is_after, e_.ir().CreateICmpEQ(row, last)));
    exists = e_.ir().CreateNot(on_border);
    Value const before = Sub(args_.padding, row);
    Value const after = Sub(Add(args_.padding, e_.Mul(last, e_.I64(2))), row);
    return e_.ir().CreateSelect(is_before, before,
                                e_.ir().CreateSelect(is_after, after, Add(row, args_.padding)));
  }

  Taps TapsOf(Value output) {
    switch (key_.kind) {
      case ResampleKind::kAverage:
        return Average(output);
      case ResampleKind::kAdaptive:
        return Adaptive(output);
      case ResampleKind::kLinear:
        return Linear(output);
      case ResampleKind::kCubic:
        return Cubic(output);
      case ResampleKind::kLinearArea:
      case ResampleKind::kCubicArea:
        return Area(output);
      default:
        return {CopiedBy(output), e_.I64(1), [this](Value) { return Real(1); }};
    }
  }

  Taps Average(Value output) {
    Value const start = Sub(e_.Mul(output, args_.stride), args_.padding);
    Value const end = Min(Add(start, args_.kernel), Add(args_.in, args_.padding));
    Value const first = Max(start, e_.I64(0));
    Value const count = Max(Sub(Min(end, args_.in), first), e_.I64(0));
    Value const elements = ToReal(key_.include_padding ? Sub(end, start) : count);
    Value const fixed = e_.ir().CreateFCmpUGT(args_.scale, Real(0));
    Value const weight = e_.ir().CreateSelect(fixed, args_.scale, e_.ir().CreateFDiv(Real(1), elements));
    return {first, count, [weight](Value) { return weight; }};
  }

  Taps Adaptive(Value output) {
    Value const first = Divide(e_.Mul(output, args_.in), args_.out);
    Value const count = Sub(DivideUp(e_.Mul(Add(output, e_.I64(1)), args_.in), args_.out), first);
    Value const weight = e_.ir().CreateFDiv(Real(1), ToReal(count));
    return {first, count, [weight](Value) { return weight; }};
  }

  // The position of an output, in inputs.
  Value SourceOf(Value output) {
    if (!key_.half_pixel) return FMul(args_.scale, ToReal(output));
    return FSub(FMul(args_.scale, FAdd(ToReal(output), Real(0.5))), Real(0.5));
  }

  Value CopiedBy(Value output) {
    Value const last = Sub(args_.in, e_.I64(1)), zero = e_.I64(0);
    Value position = Sub(output, args_.padding);
    if (key_.kind == ResampleKind::kReflect) {
      position = e_.ir().CreateSelect(e_.ir().CreateICmpSLT(position, zero), Sub(zero, position), position);
      position = e_.ir().CreateSelect(e_.ir().CreateICmpSGT(position, last),
                                      Sub(e_.Mul(last, e_.I64(2)), position), position);
    } else if (key_.kind == ResampleKind::kNearest) {
      Value source = SourceOf(output);
      if (key_.half_pixel) source = FAdd(FMax(source, Real(0)), Real(0.5));
      position = ToInteger(Floor(source));
    }
    return Clamp(position, zero, last);
  }

  Taps Linear(Value output) {
    Value const last = Sub(args_.in, e_.I64(1));
    Value const source = FMax(SourceOf(output), Real(0));
    Value const first = Min(ToInteger(source), last);
    Value const second = Min(Add(first, e_.I64(1)), last);
    Value const part = FMin(FMax(FSub(source, ToReal(first)), Real(0)), Real(1));
    return {first, Add(Sub(second, first), e_.I64(1)), [=, this](Value tap) {
              Value const at = Add(first, tap);
              Value const from_first =
                  e_.ir().CreateSelect(e_.ir().CreateICmpEQ(at, first), FSub(Real(1), part), Real(0));
              return e_.ir().CreateSelect(e_.ir().CreateICmpEQ(at, second), FAdd(from_first, part),
                                          from_first);
            }};
  }

  // Keys' cubic convolution at distance x: (a + 2) x^3 - (a + 3) x^2 + 1 up to 1, then
  // a x^3 - 5 a x^2 + 8 a x - 4 a up to 2.
  Value Near(Value x, double a) {
    return FAdd(FMul(FMul(FSub(FMul(x, Real(a + 2)), Real(a + 3)), x), x), Real(1));
  }
  Value Far(Value x, double a) {
    return FSub(FMul(FAdd(FMul(FSub(FMul(x, Real(a)), Real(5 * a)), x), Real(8 * a)), x), Real(4 * a));
  }

  // Inputs beyond the border are those on the border.
  Taps Cubic(Value output) {
    constexpr double kA = -0.75;
    Value const zero = e_.I64(0), last = Sub(args_.in, e_.I64(1));
    Value const source = SourceOf(output);
    Value const base = Min(ToInteger(Floor(source)), last);
    Value const part = FMin(FMax(FSub(source, ToReal(base)), Real(0)), Real(1));
    Value const rest = FSub(Real(1), part);
    const Values weights = {Far(FAdd(part, Real(1)), kA), Near(part, kA), Near(rest, kA),
                            Far(FAdd(rest, Real(1)), kA)};
    Values positions;
    for (int64_t j = 0; j < 4; ++j) positions.push_back(Clamp(Add(base, e_.I64(j - 1)), zero, last));
    return {positions[0], Add(Sub(positions[3], positions[0]), e_.I64(1)), [=, this](Value tap) {
              Value const at = Add(positions[0], tap);
              Value sum = Real(0);
              for (size_t j = 0; j < 4; ++j) {
                Value const own = e_.ir().CreateICmpEQ(at, positions[j]);
                sum = FAdd(sum, e_.ir().CreateSelect(own, weights[j], Real(0)));
              }
              return sum;
            }};
  }

  Value AreaFilter(Value x) {
    constexpr double kA = -0.5;
    x = Abs(x);
    Value const to_one = e_.ir().CreateFCmpOLT(x, Real(1)), to_two = e_.ir().CreateFCmpOLT(x, Real(2));
    if (key_.kind == ResampleKind::kLinearArea)
      return e_.ir().CreateSelect(to_one, FSub(Real(1), x), Real(0));
    return e_.ir().CreateSelect(to_one, Near(x, kA), e_.ir().CreateSelect(to_two, Far(x, kA), Real(0)));
  }

  // Weights of the inputs within the support, scaled to a sum of 1.
  Taps Area(Value output) {
    Value const center = FMul(args_.scale, FAdd(ToReal(output), Real(0.5)));
    Value const first = Max(ToInteger(FAdd(FSub(center, args_.support), Real(0.5))), e_.I64(0));
    Value const end = Min(ToInteger(FAdd(FAdd(center, args_.support), Real(0.5))), args_.in);
    Value const count = Clamp(Sub(end, first), e_.I64(0), args_.in);
    Value const narrow = e_.ir().CreateFDiv(Real(1), FMax(args_.scale, Real(1)));
    Value const begin = FAdd(FSub(ToReal(first), center), Real(0.5));
    const auto filter = [=, this](Value tap) { return AreaFilter(FMul(FAdd(ToReal(tap), begin), narrow)); };
    Value const total = e_.Loop(e_.I64(0), count, e_.I64(1), {Real(0)}, [&](Value tap, const Values& sum) {
      return Values{FAdd(sum[0], filter(tap))};
    })[0];
    return {first, count, [=, this](Value tap) { return e_.ir().CreateFDiv(filter(tap), total); }};
  }

  const ResampleTableKey& key_;
  const ResampleTableArguments<Emitted>& args_;
  Emitter& e_;
};

class PassEmission : WindowEmission {
 public:
  PassEmission(const ResamplePassKey& key, const ResamplePassArguments<Emitted>& arguments, Emitter& emitter)
      : WindowEmission(emitter), key_(key), args_(arguments), e_(emitter) {}

  void Run() {
    if (e_.gpu()) return EmitLane();
    Value const begin = e_.Mul(e_.Group(0), args_.slice);
    Value const end = Min(e_.Add(begin, args_.slice), args_.count);
    e_.Loop(begin, end, e_.I64(1), [&](Value unit) {
      if (key_.form == PassForm::kItems) return EmitItems(unit);
      EmitOutputs(OffsetsOf(e_, args_.items, unit, key_.rank, 2));
    });
  }

 private:
  struct Tap {
    Value position, inside, weight;
  };

  Tap LoadTap(Value tap, Value output, int width) {
    Value const at = e_.Add(e_.Mul(tap, args_.rows), output);
    Value const stored =
        e_.Load(ops::DType::kInt32, args_.positions, at, width == 1 ? Scalar::kI64 : Scalar::kI32, width);
    Value const inside = e_.ir().CreateICmpSGE(stored, Zero(stored));
    Value const weight =
        key_.copies ? nullptr : e_.Load(TypeOfReal(key_.real), args_.weights, at, key_.real, width);
    return {Max(stored, Zero(stored)), inside, weight};
  }

  // Returns sum + weight * element for a tap inside the input.
  Value Accumulate(Value sum, const Tap& tap, Value element, int width) {
    if (key_.copies) return e_.ir().CreateSelect(tap.inside, element, sum);
    const bool splat = width > 1 && !tap.weight->getType()->isVectorTy();
    Value const weight = splat ? Splat(tap.weight, width) : tap.weight;
    Value const more = e_.ir().CreateFAdd(sum, e_.ir().CreateFMul(element, weight));
    return e_.ir().CreateSelect(tap.inside, more, sum);
  }

  // Calls step(tap's number, sum) for all taps.
  Value OverTaps(int width, const std::function<Value(size_t, Value, Value)>& step) {
    Value sum = Zero(llvm::PoisonValue::get(e_.TypeOf(key_.real, width)));
    if (key_.taps == 0) {
      return e_.Loop(e_.I64(0), args_.taps, e_.I64(1), {sum},
                     [&](Value tap, const Values& now) { return Values{step(0, tap, now[0])}; })[0];
    }
    for (int64_t tap = 0; tap < key_.taps; ++tap) sum = step(static_cast<size_t>(tap), e_.I64(tap), sum);
    return sum;
  }

  // Outputs `output` .. + width - 1 of the item at `offsets`.
  void EmitOutput(const Values& offsets, Value output, int width) {
    Value const sum = OverTaps(width, [&](size_t, Value number, Value now) {
      const Tap tap = LoadTap(number, output, width);
      Value const element =
          LoadAt(key_.input, args_.in, offsets[1], tap.position, args_.in_stride, key_.adjacent, key_.real);
      return Accumulate(now, tap, element, width);
    });
    Value const at = e_.Add(offsets[0], e_.Mul(output, width > 1 ? e_.I64(1) : args_.out_stride));
    e_.Store(key_.output, args_.out, at, sum, key_.real, width);
  }

  // An item's outputs.
  void EmitOutputs(const Values& offsets) {
    Value next = e_.I64(0);
    if (key_.form == PassForm::kOutputs) {
      Value const whole = e_.ir().CreateAnd(args_.rows, e_.I64(-int64_t{kGatherWidth}));
      e_.Loop(next, whole, e_.I64(kGatherWidth),
              [&](Value output) { EmitOutput(offsets, output, kGatherWidth); });
      next = whole;
    }
    e_.Loop(next, args_.rows, e_.I64(1), [&](Value output) { EmitOutput(offsets, output, 1); });
  }

  // One output of all items of the innermost dimension.
  void EmitItems(Value unit) {
    Value const output = e_.ir().CreateURem(unit, args_.rows);
    Values at = OffsetsOf(e_, args_.items, e_.ir().CreateUDiv(unit, args_.rows), key_.rank - 1, 2);
    at[0] = e_.Add(at[0], e_.Mul(output, args_.out_stride));
    std::vector<Tap> taps;
    for (int64_t tap = 0; tap < key_.taps; ++tap) taps.push_back(LoadTap(e_.I64(tap), output, 1));
    Value const inner = args_.items.sizes[static_cast<size_t>(key_.rank - 1)];
    Value next = e_.I64(0);
    for (const int width : {32, 8, 1}) {
      Value const whole = e_.ir().CreateAnd(inner, e_.I64(-int64_t{width}));
      e_.Loop(next, whole, e_.I64(width), [&](Value column) {
        Value const sum = OverTaps(width, [&](size_t t, Value number, Value now) {
          const Tap tap = taps.empty() ? LoadTap(number, output, 1) : taps[t];
          Value const from = e_.Add(e_.Add(at[1], column), e_.Mul(tap.position, args_.in_stride));
          return Accumulate(now, tap, e_.Load(key_.input, args_.in, from, key_.real, width), width);
        });
        e_.Store(key_.output, args_.out, e_.Add(at[0], column), sum, key_.real, width);
      });
      next = whole;
    }
  }

  // GPU: an element. Neighbouring lanes take neighbours in memory.
  void EmitLane() {
    Value const index = e_.Add(e_.Mul(e_.Group(0), e_.Lanes()), e_.Lane());
    e_.If(e_.ir().CreateICmpSLT(index, args_.count), [&] {
      Value rest = index, column = e_.I64(0);
      int dims = key_.rank;
      if (key_.form == PassForm::kItems) {
        Value const inner = args_.items.sizes[static_cast<size_t>(--dims)];
        column = e_.ir().CreateURem(rest, inner);
        rest = e_.ir().CreateUDiv(rest, inner);
      }
      Value const output = e_.ir().CreateURem(rest, args_.rows);
      Values offsets = OffsetsOf(e_, args_.items, e_.ir().CreateUDiv(rest, args_.rows), dims, 2);
      for (Value& offset : offsets) offset = e_.Add(offset, column);
      EmitOutput(offsets, output, 1);
    });
  }

  const ResamplePassKey& key_;
  const ResamplePassArguments<Emitted>& args_;
  Emitter& e_;
};

}  // namespace

absl::Status ResampleTableSkeleton::EmitBody(const ResampleTableKey& key,
                                             const ResampleTableArguments<Emitted>& arguments,
                                             Emitter& e) const {
  TableEmission(key, arguments, e).Run();
  return absl::OkStatus();
}

absl::Status ResamplePassSkeleton::EmitBody(const ResamplePassKey& key,
                                            const ResamplePassArguments<Emitted>& arguments,
                                            Emitter& e) const {
  PassEmission(key, arguments, e).Run();
  return absl::OkStatus();
}

}  // namespace xpud::kernels
