#include "kernels/loops/reduction.h"

#include <cmath>
#include <limits>

namespace xpud::kernels {

using loops::Reduction;
using Value = llvm::Value*;
using Values = std::vector<llvm::Value*>;

namespace {

// Of no pair yet: it is later than all.
constexpr int64_t kNoPosition = std::numeric_limits<int64_t>::max();

}  // namespace

Value ReductionEmission::Add(Value a, Value b) {
  return IsReal() ? rows_.AddFreely(a, b) : e_.ir().CreateAdd(a, b);
}

Value ReductionEmission::Multiply(Value a, Value b) {
  if (!IsReal()) return e_.ir().CreateMul(a, b);
  Value const product = e_.ir().CreateFMul(a, b);
  if (auto* const multiply = llvm::dyn_cast<llvm::Instruction>(product)) {
    llvm::FastMathFlags flags;
    flags.setAllowReassoc(true);
    multiply->copyFastMathFlags(flags);
  }
  return product;
}

Value ReductionEmission::Identity(bool lowest) {
  if (IsReal()) return e_.Constant(scalar_, lowest ? -INFINITY : INFINITY);
  if (scalar_ == Scalar::kU8) return e_.IntegerConstant(scalar_, lowest ? 0 : 255);
  const unsigned bits = e_.TypeOf(scalar_)->getIntegerBitWidth();
  const llvm::APInt value =
      lowest ? llvm::APInt::getSignedMinValue(bits) : llvm::APInt::getSignedMaxValue(bits);
  return llvm::ConstantInt::get(e_.TypeOf(scalar_), value);
}

Value ReductionEmission::Extreme(Value a, Value b, bool largest) {
  if (IsReal()) {
    if (largest) return rows_.Maximum(a, b);
    Value const call = e_.ir().CreateBinaryIntrinsic(llvm::Intrinsic::minimum, a, b);
    llvm::FastMathFlags flags;
    flags.setNoSignedZeros(true);
    if (auto* const instruction = llvm::dyn_cast<llvm::Instruction>(call))
      instruction->copyFastMathFlags(flags);
    return call;
  }
  const bool is_signed = scalar_ != Scalar::kU8;
  const llvm::Intrinsic::ID id = largest ? (is_signed ? llvm::Intrinsic::smax : llvm::Intrinsic::umax)
                                         : (is_signed ? llvm::Intrinsic::smin : llvm::Intrinsic::umin);
  return e_.ir().CreateBinaryIntrinsic(id, a, b);
}

// The better value; of equal ones, and of several NaN, the one that comes first.
Values ReductionEmission::Winner(const Values& a, const Values& b) {
  llvm::IRBuilder<>& ir = e_.ir();
  const bool largest = reduction_ == Reduction::kArgMax;
  Value better, equal;
  if (IsReal()) {
    Value const a_nan = ir.CreateFCmpUNO(a[0], a[0]), b_nan = ir.CreateFCmpUNO(b[0], b[0]);
    Value const beats = largest ? ir.CreateFCmpOGT(b[0], a[0]) : ir.CreateFCmpOLT(b[0], a[0]);
    better = ir.CreateOr(beats, ir.CreateAnd(b_nan, ir.CreateNot(a_nan)));
    equal = ir.CreateOr(ir.CreateFCmpOEQ(a[0], b[0]), ir.CreateAnd(a_nan, b_nan));
  } else {
    const bool is_signed = scalar_ != Scalar::kU8;
    better = largest ? (is_signed ? ir.CreateICmpSGT(b[0], a[0]) : ir.CreateICmpUGT(b[0], a[0]))
                     : (is_signed ? ir.CreateICmpSLT(b[0], a[0]) : ir.CreateICmpULT(b[0], a[0]));
    equal = ir.CreateICmpEQ(a[0], b[0]);
  }
  Value const wins = ir.CreateOr(better, ir.CreateAnd(equal, ir.CreateICmpSLT(b[1], a[1])));
  return {ir.CreateSelect(wins, b[0], a[0]), ir.CreateSelect(wins, b[1], a[1])};
}

Value ReductionEmission::Exp(Value x) {
  return e_.CallMath(scalar_ == Scalar::kF64 ? "exp_f64" : "exp_f32", e_.TypeOf(scalar_), {{x}});
}

Value ReductionEmission::Ratio(Value a, Value b) {
  Value const zero = e_.Constant(scalar_, 0);
  return e_.ir().CreateSelect(e_.ir().CreateFCmpOEQ(b, zero), zero, e_.ir().CreateFDiv(a, b));
}

Values ReductionEmission::Empty() {
  Value const zero = e_.IntegerConstant(scalar_, 0);
  switch (reduction_) {
    case Reduction::kSum:
    case Reduction::kXor:
    case Reduction::kAny:
    case Reduction::kWelford:
      return {zero};
    case Reduction::kProduct:
      return {e_.IntegerConstant(scalar_, 1)};
    case Reduction::kMin:
      return {Identity(false)};
    case Reduction::kMax:
      return {Identity(true)};
    case Reduction::kArgMin:
      return {Identity(false), e_.I64(kNoPosition)};
    case Reduction::kArgMax:
      return {Identity(true), e_.I64(kNoPosition)};
    case Reduction::kWelfordCombine:
      return pass_ == 0 ? Values{zero, zero} : Values{zero};
    case Reduction::kOnlineSoftmax:
      return {pass_ == 0 ? Identity(true) : zero};
  }
  return {};
}

Values ReductionEmission::Take(const Values& state, const Values& values, const Values& before) {
  llvm::IRBuilder<>& ir = e_.ir();
  switch (reduction_) {
    case Reduction::kWelford: {
      if (pass_ == 0) return {Add(state[0], values[0])};
      Value const deviation = ir.CreateFSub(values[0], before[0]);
      return {Add(state[0], ir.CreateFMul(deviation, deviation))};
    }
    case Reduction::kWelfordCombine: {
      if (pass_ == 0) return {Add(state[0], ir.CreateFMul(values[0], values[2])), Add(state[1], values[2])};
      Value const deviation = ir.CreateFSub(values[0], before[0]);
      Value const square = ir.CreateFMul(ir.CreateFMul(deviation, deviation), values[2]);
      return {Add(state[0], ir.CreateFAdd(values[1], square))};
    }
    case Reduction::kOnlineSoftmax: {
      if (pass_ == 0) return {Extreme(state[0], values[0], true)};
      Value const nothing = ir.CreateFCmpOEQ(values[0], e_.Constant(scalar_, -INFINITY));
      Value const e = Exp(ir.CreateFSub(values[0], before[0]));
      return {Add(state[0], ir.CreateSelect(nothing, e_.Constant(scalar_, 0), e))};
    }
    default:
      return Merge(state, values);
  }
}

Values ReductionEmission::Merge(const Values& a, const Values& b) {
  switch (reduction_) {
    case Reduction::kSum:
    case Reduction::kWelford:
      return {Add(a[0], b[0])};
    case Reduction::kWelfordCombine:
      return pass_ == 0 ? Values{Add(a[0], b[0]), Add(a[1], b[1])} : Values{Add(a[0], b[0])};
    case Reduction::kProduct:
      return {Multiply(a[0], b[0])};
    case Reduction::kMin:
      return {Extreme(a[0], b[0], false)};
    case Reduction::kMax:
      return {Extreme(a[0], b[0], true)};
    case Reduction::kXor:
      return {e_.ir().CreateXor(a[0], b[0])};
    case Reduction::kAny:
      return {e_.ir().CreateOr(a[0], b[0])};
    case Reduction::kArgMin:
    case Reduction::kArgMax:
      return Winner(a, b);
    case Reduction::kOnlineSoftmax:
      return {pass_ == 0 ? Extreme(a[0], b[0], true) : Add(a[0], b[0])};
  }
  return {};
}

Values ReductionEmission::EmptyGiven() {
  Value const zero = e_.IntegerConstant(scalar_, 0);
  switch (reduction_) {
    case Reduction::kWelford:
    case Reduction::kWelfordCombine:
      return {zero, zero, zero};
    case Reduction::kOnlineSoftmax:
      return {Identity(true), zero};
    default:
      return Empty();
  }
}

Values ReductionEmission::MergeGiven(const Values& a, const Values& b) {
  llvm::IRBuilder<>& ir = e_.ir();
  switch (reduction_) {
    case Reduction::kWelford:
    case Reduction::kWelfordCombine: {
      Value const count = ir.CreateFAdd(a[2], b[2]), difference = ir.CreateFSub(b[0], a[0]);
      Value const step = ir.CreateFMul(difference, Ratio(b[2], count));
      Value const square = ir.CreateFMul(ir.CreateFMul(difference, a[2]), step);
      return {ir.CreateFAdd(a[0], step), ir.CreateFAdd(ir.CreateFAdd(a[1], b[1]), square), count};
    }
    case Reduction::kOnlineSoftmax: {
      Value const largest = Extreme(a[0], b[0], true), lowest = e_.Constant(scalar_, -INFINITY);
      const auto scaled = [&](const Values& part) {
        Value const scale = Exp(ir.CreateFSub(part[0], largest));
        return ir.CreateSelect(ir.CreateFCmpOEQ(part[0], lowest), e_.Constant(scalar_, 0),
                               ir.CreateFMul(part[1], scale));
      };
      return {largest, ir.CreateFAdd(scaled(a), scaled(b))};
    }
    default:
      return Merge(a, b);
  }
}

Values ReductionEmission::Finish(const Values& state, const Values& before, Value count) {
  llvm::IRBuilder<>& ir = e_.ir();
  switch (reduction_) {
    case Reduction::kArgMin:
    case Reduction::kArgMax: {
      Value const none = ir.CreateICmpEQ(state[1], e_.I64(kNoPosition));
      return {state[0], ir.CreateSelect(none, e_.I64(0), state[1])};
    }
    case Reduction::kWelford: {
      Value const number = ir.CreateSIToFP(count, e_.TypeOf(scalar_));
      if (pass_ == 0) return {Ratio(state[0], number)};
      return {before[0], state[0], number};
    }
    case Reduction::kWelfordCombine:
      if (pass_ == 0) return {Ratio(state[0], state[1]), state[1]};
      return {before[0], state[0], before[1]};
    case Reduction::kOnlineSoftmax:
      if (pass_ == 0) return state;
      return {before[0], state[0]};
    default:
      return state;
  }
}

}  // namespace xpud::kernels
