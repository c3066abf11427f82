// Tables of resampling: where the taps of each output are, and their weights.
#include <functional>
#include <vector>

#include "kernels/families/resample.h"
#include "kernels/families/window_emission.h"

namespace xpud::kernels {

using ops::ResampleKind;

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

}  // namespace

absl::Status ResampleTableSkeleton::EmitBody(const ResampleTableKey& key,
                                             const ResampleTableArguments<Emitted>& arguments,
                                             Emitter& e) const {
  TableEmission(key, arguments, e).Run();
  return absl::OkStatus();
}

}  // namespace xpud::kernels
