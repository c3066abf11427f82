// A pass of resampling along one dimension, with the weights of a table.
#include <functional>
#include <vector>

#include "kernels/families/resample.h"
#include "kernels/families/window_emission.h"

namespace xpud::kernels {

namespace {

using Value = llvm::Value*;
using Values = std::vector<llvm::Value*>;

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

absl::Status ResamplePassSkeleton::EmitBody(const ResamplePassKey& key,
                                            const ResamplePassArguments<Emitted>& arguments,
                                            Emitter& e) const {
  PassEmission(key, arguments, e).Run();
  return absl::OkStatus();
}

}  // namespace xpud::kernels
