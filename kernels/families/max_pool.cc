#include "kernels/families/max_pool.h"

#include <algorithm>

#include "kernels/families/planners.h"
#include "kernels/families/slices.h"
#include "kernels/families/window_emission.h"
#include "proto/base/status_macros.h"
#include "proto/ops/families/max_pool.h"

namespace xpud::kernels {

// ---- planning

namespace {

constexpr size_t kSpatial = ops::kMaxSpatial;

// Three operands as planes: the strides of their last `spatial` dimensions, and a layout of the others.
struct Planes {
  Planes(std::array<const Operand*, 3> operands, size_t spatial) {
    const size_t leading = operands[0]->rank - spatial;
    Operand shape = *operands[0];
    shape.rank = static_cast<uint8_t>(leading);
    layout = Layout::Over(shape);
    for (size_t o = 0; o < 3; ++o) {
      Operand outer = *operands[o];
      outer.rank = shape.rank;
      layout.AddOperand(outer);
      for (size_t d = 0; d < spatial; ++d)
        strides[o][kSpatial - spatial + d] = operands[o]->strides[leading + d];
    }
    layout.Collapse(/*may_permute=*/true);
  }
  static std::array<int64_t, kSpatial> SizesOf(const Operand& operand, size_t spatial) {
    std::array<int64_t, kSpatial> sizes = {1, 1, 1};
    for (size_t d = 0; d < spatial; ++d)
      sizes[kSpatial - spatial + d] = operand.sizes[operand.rank - spatial + d];
    return sizes;
  }
  bool are_contiguous() const {
    bool contiguous = true;
    for (int o = 0; o < 3; ++o) contiguous &= layout.AccessOf(o) == Access::kContiguous;
    return contiguous;
  }

  Layout layout;
  std::array<std::array<int64_t, kSpatial>, 3> strides{};
};

bool IsEmpty(const Operand& operand) {
  for (int d = 0; d < operand.rank; ++d)
    if (operand.sizes[d] == 0) return true;
  return false;
}

// Returns the most elements of a row that a window has, or (backward) the most windows that cover an element.
int64_t TapsOf(const ops::Window& w, bool adaptive, bool backward) {
  if (adaptive)
    return (backward ? w.out / std::max<int64_t>(w.in, 1) : w.in / std::max<int64_t>(w.out, 1)) + 2;
  return backward ? std::min(w.out, (w.kernel - 1) * w.dilation / w.stride + 1) : w.kernel;
}

// Vectors compute positions in i32.
bool FitsVectors(const ops::MaxPoolSpec& spec) {
  constexpr double kMost = 0x1p30;
  double plane = 1;
  for (int d = 0; d < spec.spatial; ++d) {
    const ops::Window& w = spec.windows[static_cast<size_t>(d)];
    plane *= static_cast<double>(std::max(w.in, w.out));
    const double reach = static_cast<double>(w.out + 8) * static_cast<double>(w.stride) +
                         static_cast<double>(w.kernel) * static_cast<double>(w.dilation) +
                         static_cast<double>(w.padding) + static_cast<double>(w.in);
    if (reach > kMost) return false;
    if (spec.adaptive && static_cast<double>(w.in + 8) * static_cast<double>(w.out + 8) > kMost) return false;
  }
  return plane < kMost;
}

}  // namespace

absl::StatusOr<Readiness> MaxPoolPlanner::Plan(const OpCall& call, Workspace, LaunchList& launches) {
  switch (call.row->family) {
    case ops::Family::kMaxUnpool:
      return PlanUnpool(call, launches);
    case ops::Family::kMaxPoolBackward: {
      const auto pool = ops::Read<ops::MaxPoolBackwardCall>(call);
      return PlanPool({pool.attributes, *pool.grad_input, *pool.indices, *pool.grad_output, true}, launches);
    }
    default: {
      const auto pool = ops::Read<ops::MaxPoolCall>(call);
      return PlanPool({pool.attributes, *pool.values, *pool.indices, *pool.self, false}, launches);
    }
  }
}

absl::StatusOr<Readiness> MaxPoolPlanner::PlanPool(const Pool& pool, LaunchList& launches) {
  const auto& [attributes, result, indices, read, backward] = pool;
  if (IsEmpty(result)) return Readiness::kReady;
  const bool gpu = cache_.target() != Target::kHost;
  ASSIGN_OR_RETURN(const ops::MaxPoolSpec spec,
                   ops::MaxPoolOf(attributes, backward ? result : read, backward ? read : result));
  const auto spatial = static_cast<size_t>(spec.spatial);
  const Planes planes({&result, &indices, &read}, spatial);
  const auto sizes = Planes::SizesOf(result, spatial);
  const int64_t row = sizes[kSpatial - 1];

  MaxPoolKey key;
  key.type = read.dtype;
  key.backward = backward;
  key.adaptive = spec.adaptive;
  for (const ops::Window& window : spec.windows) key.dilated |= window.dilation > 1;
  key.rank = planes.layout.rank;
  if (planes.are_contiguous() && planes.layout.inner() >= 8 && (gpu || FitsVectors(spec))) {
    key.form = PlaneForm::kPlanes;
  } else if (!gpu && FitsVectors(spec) && planes.strides[0][kSpatial - 1] == 1 && row >= kGatherWidth &&
             (backward || planes.strides[1][kSpatial - 1] == 1)) {
    key.form = PlaneForm::kRows;
    for (size_t o = 0; o < 2; ++o) key.adjacent[o] = planes.strides[o + 1][kSpatial - 1] == 1;
  }
  ASSIGN_OR_RETURN(const Kernel* const kernel, cache_.Find(pool_, key));
  if (kernel == nullptr) return Readiness::kCompiling;

  MaxPoolArguments<Planned> arguments;
  arguments.operands = {result.data, indices.data, read.data};
  SetSpace(planes.layout, arguments.planes);
  arguments.strides = planes.strides;
  float taps = 1;
  for (size_t d = 0; d < kSpatial; ++d) {
    const ops::Window w = d + spatial < kSpatial ? ops::Window{} : spec.windows[d + spatial - kSpatial];
    arguments.in[d] = w.in;
    arguments.out[d] = w.out;
    arguments.kernel[d] = w.kernel;
    arguments.stride[d] = w.stride;
    arguments.padding[d] = w.padding;
    arguments.dilation[d] = w.dilation;
    arguments.taps = TapsOf(w, spec.adaptive, backward);
    taps *= static_cast<float>(arguments.taps);
  }
  const bool by_planes = key.form == PlaneForm::kPlanes;
  const int64_t outer = planes.layout.numel() / (by_planes ? planes.layout.inner() : 1);
  const int64_t rows = outer * sizes[0] * sizes[1], unit = row * (by_planes ? planes.layout.inner() : 1);
  arguments.count = gpu ? rows * unit : rows;
  arguments.slice =
      gpu ? kGpuLanes : SliceOf(rows, static_cast<float>(unit) * taps * (by_planes ? 0.3f : 0.6f), 1);
  Launch& launch = launches.Add();
  launch.Reset(kernel, CeilDiv(arguments.count, arguments.slice));
  if (gpu) launch.group_size = {kGpuLanes, 1, 1};
  PushArguments(key, arguments, launch);
  return Readiness::kReady;
}

absl::StatusOr<Readiness> MaxPoolPlanner::PlanUnpool(const OpCall& call, LaunchList& launches) {
  const auto unpool = ops::Read<ops::MaxUnpoolCall>(call);
  const Operand &out = *unpool.out, &self = *unpool.self, &indices = *unpool.indices;
  if (IsEmpty(out) || IsEmpty(self)) return Readiness::kReady;
  const bool gpu = cache_.target() != Target::kHost;
  const auto spatial = static_cast<size_t>(unpool.spatial);
  const Planes planes({&out, &self, &indices}, spatial);
  MaxUnpoolKey key;
  key.element = BitsOf(ops::SizeOf(self.dtype));
  key.index = indices.dtype;
  key.rank = planes.layout.rank;
  ASSIGN_OR_RETURN(const Kernel* const kernel, cache_.Find(unpool_, key));
  if (kernel == nullptr) return Readiness::kCompiling;

  MaxUnpoolArguments<Planned> arguments;
  arguments.operands = {out.data, self.data, indices.data};
  arguments.error_word = call.error_word;
  SetSpace(planes.layout, arguments.planes);
  arguments.strides = planes.strides;
  arguments.sizes = Planes::SizesOf(self, spatial);
  arguments.out_sizes = Planes::SizesOf(out, spatial);
  arguments.count = planes.layout.numel();
  const auto plane =
      static_cast<float>(arguments.sizes[0] * arguments.sizes[1]) * static_cast<float>(arguments.sizes[2]);
  arguments.slice = gpu ? kGpuLanes : SliceOf(arguments.count, 4 * plane, 1);
  Launch& launch = launches.Add();
  launch.Reset(kernel, CeilDiv(arguments.count, arguments.slice));
  if (gpu) launch.group_size = {kGpuLanes, 1, 1};
  PushArguments(key, arguments, launch);
  return Readiness::kReady;
}

// ---- emission

namespace {

using Value = llvm::Value*;
using Values = std::vector<llvm::Value*>;

class MaxPoolEmission : WindowEmission {
 public:
  MaxPoolEmission(const MaxPoolKey& key, const MaxPoolArguments<Emitted>& arguments, Emitter& emitter)
      : WindowEmission(emitter),
        key_(key),
        args_(arguments),
        e_(emitter),
        scalar_(key.backward ? AccumulateOf(key.type) : ScalarOf(key.type)) {}

  void Run() {
    if (e_.gpu()) return EmitLane();
    Value const begin = e_.Mul(e_.Group(0), args_.slice);
    Value const end = Min(e_.Add(begin, args_.slice), args_.count);
    e_.Loop(begin, end, e_.I64(1), [&](Value unit) { EmitRow(unit); });
  }

 private:
  // Positions of a window's elements along a dimension, or of the windows that cover an element: begin, begin
  // + step, ... before end.
  struct Range {
    Value begin, end, step;
  };
  // Where a result is: offsets of the operands' planes, and its position in the plane.
  struct Place {
    Values offsets;
    Value z, y;
    Range zs, ys;  // of the windows
  };

  static constexpr size_t kX = kSpatial - 1;
  PerDimension<Emitted> const& ResultSizes() const { return key_.backward ? args_.in : args_.out; }

  Range RangeOf(size_t d, Value at, int width) {
    const auto of = [&](const PerDimension<Emitted>& each) { return Narrow(each[d], width); };
    Value const one = One(at);
    if (key_.adaptive) {
      Value const from = of(key_.backward ? args_.in : args_.out),
                  to = of(key_.backward ? args_.out : args_.in);
      return {Divide(e_.ir().CreateMul(at, to), from), DivideUp(e_.ir().CreateMul(Add(at, one), to), from),
              one};
    }
    Value const reach = e_.ir().CreateMul(Sub(of(args_.kernel), one), of(args_.dilation));
    if (key_.backward) {
      Value const last = Add(at, of(args_.padding));
      return {DivideUp(Sub(last, reach), of(args_.stride)),
              Min(Add(Divide(last, of(args_.stride)), one), of(args_.out)), one};
    }
    Value const start = Sub(e_.ir().CreateMul(at, of(args_.stride)), of(args_.padding));
    Value const end = Min(Add(Add(start, reach), one), of(args_.in)), step = of(args_.dilation);
    Value const inside = key_.dilated
                             ? Add(start, e_.ir().CreateMul(DivideUp(Sub(Zero(at), start), step), step))
                             : Max(start, Zero(at));
    return {inside, end, step};
  }

  // ---- what is done at an element of a window

  // The state before a window: no gradient, or the lowest value at the window's first element, `first`.
  Values Init(Value first, int width) {
    if (key_.backward) return {llvm::Constant::getNullValue(e_.TypeOf(scalar_, width))};
    return {Lowest(width), first};
  }

  Value Lowest(int width) {
    llvm::Type* const type = e_.TypeOf(scalar_, width);
    if (IsFloat(scalar_)) return llvm::ConstantFP::getInfinity(type, /*Negative=*/true);
    const unsigned bits = type->getScalarSizeInBits();
    return scalar_ == Scalar::kU8 ? llvm::Constant::getNullValue(type)
                                  : llvm::ConstantInt::get(type, llvm::APInt::getSignedMinValue(bits));
  }

  // Forward: takes `element` at `position` if it is larger than the state's, or NaN.
  Values Larger(const Values& state, Value element, Value position, Value inside) {
    auto& ir = e_.ir();
    const bool is_unsigned = scalar_ == Scalar::kU8;
    Value better = IsFloat(scalar_)
                       ? ir.CreateOr(ir.CreateFCmpOGT(element, state[0]), ir.CreateFCmpUNO(element, element))
                   : is_unsigned ? ir.CreateICmpUGT(element, state[0])
                                 : ir.CreateICmpSGT(element, state[0]);
    if (inside != nullptr) better = ir.CreateAnd(better, inside);
    return {ir.CreateSelect(better, element, state[0]), ir.CreateSelect(better, position, state[1])};
  }

  // Backward: adds the gradient of a window whose position is `own`.
  Values AddOwn(const Values& state, Value gradient, Value index, Value own, Value inside) {
    auto& ir = e_.ir();
    Value counts = ir.CreateICmpEQ(index, own);
    if (inside != nullptr) counts = ir.CreateAnd(counts, inside);
    return {ir.CreateSelect(counts, ir.CreateFAdd(state[0], gradient), state[0])};
  }

  // The number of element (z, y, x) in its plane, as `x` is: i64, or vectors of i32.
  Value NumberOf(Value z, Value y, Value x, int width) {
    Value const row = e_.Mul(e_.Add(e_.Mul(z, args_.in[1]), y), args_.in[kX]);
    return Add(Narrow(row, width), x);
  }

  void Store(const Place& place, Value x, const Values& state, int width) {
    const auto at = [&](size_t o) { return e_.Add(place.offsets[o], PlaneOffset(o, place.z, place.y, x)); };
    e_.Store(key_.type, args_.operands[0], at(0), state[0], scalar_, width);
    if (key_.backward) return;
    e_.Store(ops::DType::kInt64, args_.operands[1], at(1), state[1], width == 1 ? Scalar::kI64 : Scalar::kI32,
             width);
  }

  Value PlaneOffset(size_t o, Value z, Value y, Value x) {
    const auto& strides = args_.strides[o];
    return e_.Add(e_.Add(e_.Mul(z, strides[0]), e_.Mul(y, strides[1])), e_.Mul(x, strides[kX]));
  }

  // Steps through (z, y) of the windows of a result. `body` gets z, y and the state.
  Values OverRows(const Place& place, const Values& init,
                  const std::function<Values(Value, Value, const Values&)>& body) {
    const Range &zs = place.zs, &ys = place.ys;
    return e_.Loop(zs.begin, zs.end, zs.step, init, [&](Value z, const Values& outer) {
      return e_.Loop(ys.begin, ys.end, ys.step, outer,
                     [&](Value y, const Values& state) { return body(z, y, state); });
    });
  }

  // The result at x of one plane, or of `width` neighbouring planes.
  void EmitResult(const Place& place, Value x, const Range& xs, int width) {
    Value const own = NumberOf(place.z, place.y, x, 1);
    Value const first = NumberOf(place.zs.begin, place.ys.begin, xs.begin, 1);
    const Values result =
        OverRows(place, Init(Narrow(first, width), width), [&](Value z, Value y, const Values& outer) {
          return e_.Loop(xs.begin, xs.end, xs.step, outer, [&](Value at, const Values& state) {
            const auto load = [&](size_t o, ops::DType type, Scalar as) {
              return e_.Load(type, args_.operands[o], e_.Add(place.offsets[o], PlaneOffset(o, z, y, at)), as,
                             width);
            };
            Value const element = load(2, key_.type, scalar_);
            if (!key_.backward) return Larger(state, element, Narrow(NumberOf(z, y, at, 1), width), nullptr);
            Value const index = load(1, ops::DType::kInt64, width == 1 ? Scalar::kI64 : Scalar::kI32);
            return AddOwn(state, element, index, Narrow(own, width), nullptr);
          });
        });
    Store(place, x, result, width);
  }

  // The results at x .. x + kGatherWidth - 1 of one plane.
  void EmitVector(const Place& place, Value x) {
    constexpr int kWidth = kGatherWidth;
    Value const results = Add(Narrow(x, kWidth), Steps(kWidth));
    const Range xs = RangeOf(kX, results, kWidth);
    Value const own = NumberOf(place.z, place.y, results, kWidth);
    Value const first = NumberOf(place.zs.begin, place.ys.begin, xs.begin, kWidth);
    const Values result = OverRows(place, Init(first, kWidth), [&](Value z, Value y, const Values& outer) {
      return e_.Loop(e_.I64(0), args_.taps, e_.I64(1), outer, [&](Value tap, const Values& state) {
        Value at = Add(xs.begin, e_.ir().CreateMul(Narrow(tap, kWidth), xs.step));
        Value const inside =
            e_.ir().CreateAnd(e_.ir().CreateICmpSGE(at, Zero(at)), e_.ir().CreateICmpSLT(at, xs.end));
        at = e_.ir().CreateSelect(inside, at, Zero(at));
        const auto load = [&](size_t o, ops::DType type, Scalar as) {
          Value const row = e_.Add(place.offsets[o], PlaneOffset(o, z, y, e_.I64(0)));
          return LoadAt(type, args_.operands[o], row, at, args_.strides[o][kX], key_.adjacent[o - 1], as);
        };
        Value const element = load(2, key_.type, scalar_);
        if (!key_.backward) return Larger(state, element, NumberOf(z, y, at, kWidth), inside);
        return AddOwn(state, element, load(1, ops::DType::kInt64, Scalar::kI32), own, inside);
      });
    });
    Store(place, x, result, kWidth);
  }

  // ---- loops

  // Splits `unit` into an outer plane and a row of it.
  Place PlaceOf(Value unit) {
    const auto& sizes = ResultSizes();
    Place place;
    place.y = e_.ir().CreateURem(unit, sizes[1]);
    unit = e_.ir().CreateUDiv(unit, sizes[1]);
    place.z = e_.ir().CreateURem(unit, sizes[0]);
    unit = e_.ir().CreateUDiv(unit, sizes[0]);
    place.zs = RangeOf(0, place.z, 1);
    place.ys = RangeOf(1, place.y, 1);
    const bool by_planes = key_.form == PlaneForm::kPlanes;
    place.offsets = OffsetsOf(e_, args_.planes, unit, by_planes ? key_.rank - 1 : key_.rank, 3);
    return place;
  }

  Place Moved(Place place, Value planes) {
    for (Value& offset : place.offsets) offset = e_.Add(offset, planes);
    return place;
  }

  void EmitRow(Value unit) {
    const Place place = PlaceOf(unit);
    Value const row = ResultSizes()[kX];
    Value next = e_.I64(0);
    if (key_.form == PlaneForm::kPlanes)
      return e_.Loop(next, row, e_.I64(1), [&](Value x) { EmitPlanes(place, x); });
    if (key_.form == PlaneForm::kRows) {
      Value const whole = e_.ir().CreateAnd(row, e_.I64(-int64_t{kGatherWidth}));
      e_.Loop(next, whole, e_.I64(kGatherWidth), [&](Value x) { EmitVector(place, x); });
      next = whole;
    }
    e_.Loop(next, row, e_.I64(1), [&](Value x) { EmitResult(place, x, RangeOf(kX, x, 1), 1); });
  }

  void EmitPlanes(const Place& place, Value x) {
    Value const inner = args_.planes.sizes[static_cast<size_t>(key_.rank - 1)];
    const Range xs = RangeOf(kX, x, 1);
    Value next = e_.I64(0);
    for (const int width : {32, 8, 1}) {
      Value const whole = e_.ir().CreateAnd(inner, e_.I64(-int64_t{width}));
      e_.Loop(next, whole, e_.I64(width),
              [&](Value plane) { EmitResult(Moved(place, plane), x, xs, width); });
      next = whole;
    }
  }

  // GPU: neighbouring lanes take neighbours in memory.
  void EmitLane() {
    Value const index = e_.Add(e_.Mul(e_.Group(0), e_.Lanes()), e_.Lane());
    e_.If(e_.ir().CreateICmpSLT(index, args_.count), [&] {
      Value rest = index, plane = e_.I64(0);
      if (key_.form == PlaneForm::kPlanes) {
        Value const inner = args_.planes.sizes[static_cast<size_t>(key_.rank - 1)];
        plane = e_.ir().CreateURem(rest, inner);
        rest = e_.ir().CreateUDiv(rest, inner);
      }
      Value const row = ResultSizes()[kX];
      Value const x = e_.ir().CreateURem(rest, row);
      EmitResult(Moved(PlaceOf(e_.ir().CreateUDiv(rest, row)), plane), x, RangeOf(kX, x, 1), 1);
    });
  }

  const MaxPoolKey& key_;
  const MaxPoolArguments<Emitted>& args_;
  Emitter& e_;
  const Scalar scalar_;
};

class MaxUnpoolEmission {
 public:
  MaxUnpoolEmission(const MaxUnpoolKey& key, const MaxUnpoolArguments<Emitted>& arguments, Emitter& emitter)
      : key_(key), args_(arguments), e_(emitter) {}

  void Run() {
    Value const begin = e_.Mul(e_.Group(0), args_.slice);
    Value const end = e_.Min(e_.Add(begin, args_.slice), args_.count);
    e_.Loop(e_.Add(begin, e_.Lane()), end, e_.Lanes(),
            [&](Value item) { EmitPlane(OffsetsOf(e_, args_.planes, item, key_.rank, 3)); });
  }

 private:
  void EmitPlane(const Values& offsets) {
    const auto over = [&](size_t d, const std::function<void(Value)>& body) {
      e_.Loop(e_.I64(0), args_.sizes[d], e_.I64(1), body);
    };
    over(0, [&](Value z) {
      over(1, [&](Value y) { over(2, [&](Value x) { EmitElement(offsets, {z, y, x}); }); });
    });
  }

  Value OffsetOf(size_t o, Value offset, const std::array<Value, kSpatial>& at) {
    for (size_t d = 0; d < kSpatial; ++d) offset = e_.Add(offset, e_.Mul(at[d], args_.strides[o][d]));
    return offset;
  }

  void EmitElement(const Values& offsets, const std::array<Value, kSpatial>& at) {
    Value const index = e_.Load(key_.index, args_.operands[2], OffsetOf(2, offsets[2], at), Scalar::kI64);
    const auto& sizes = args_.out_sizes;
    Value const plane = e_.Mul(e_.Mul(sizes[0], sizes[1]), sizes[2]);
    Value const inside = e_.IsIndex(index, plane);
    e_.ReportIndex(args_.error_word, e_.ir().CreateNot(inside), index);
    e_.If(inside, [&] {
      auto& ir = e_.ir();
      Value const rows = ir.CreateUDiv(index, sizes[2]);
      const std::array<Value, kSpatial> to = {ir.CreateUDiv(rows, sizes[1]), ir.CreateURem(rows, sizes[1]),
                                              ir.CreateURem(index, sizes[2])};
      const Scalar scalar = ScalarOf(key_.element);
      Value const element = e_.Load(key_.element, args_.operands[1], OffsetOf(1, offsets[1], at), scalar);
      e_.Store(key_.element, args_.operands[0], OffsetOf(0, offsets[0], to), element, scalar);
    });
  }

  const MaxUnpoolKey& key_;
  const MaxUnpoolArguments<Emitted>& args_;
  Emitter& e_;
};

}  // namespace

absl::Status MaxPoolSkeleton::EmitBody(const MaxPoolKey& key, const MaxPoolArguments<Emitted>& arguments,
                                       Emitter& e) const {
  MaxPoolEmission(key, arguments, e).Run();
  return absl::OkStatus();
}

absl::Status MaxUnpoolSkeleton::EmitBody(const MaxUnpoolKey& key,
                                         const MaxUnpoolArguments<Emitted>& arguments, Emitter& e) const {
  MaxUnpoolEmission(key, arguments, e).Run();
  return absl::OkStatus();
}

constinit const PlannerFactory kMaxPoolPlanner = MakePlanner<MaxPoolPlanner>;
constinit const PlannerFactory kMaxPoolBackwardPlanner = MakePlanner<MaxPoolPlanner>;
constinit const PlannerFactory kMaxUnpoolPlanner = MakePlanner<MaxPoolPlanner>;

}  // namespace xpud::kernels
