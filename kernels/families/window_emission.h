// Arithmetic of windows and gathered vectors, shared by resampling and pooling. Plain functions on one
// emitter.
#pragma once

#include "kernels/compiler/emitter.h"

namespace xpud::kernels {

// Elements of a vector of positions.
inline constexpr int kGatherWidth = 8;

class WindowEmission {
 public:
  using Value = llvm::Value*;

  explicit WindowEmission(Emitter& emitter) : e_(emitter) {}

  // Integers of any width, also vectors. REQUIRES: divisors are positive.
  Value Max(Value a, Value b) { return e_.ir().CreateSelect(e_.ir().CreateICmpSGT(a, b), a, b); }
  Value Min(Value a, Value b) { return e_.ir().CreateSelect(e_.ir().CreateICmpSLT(a, b), a, b); }
  Value Clamp(Value value, Value low, Value high) { return Min(Max(value, low), high); }
  // Returns floor(a / b) for a >= 0 (vectors: i32), and 0 for negative a.
  Value Divide(Value a, Value b);
  // Returns ceil(a / b), or 0 for negative a.
  Value DivideUp(Value a, Value b) { return Divide(Sub(Add(a, b), One(a)), b); }

  Value Add(Value a, Value b) { return e_.ir().CreateAdd(a, b); }
  Value Sub(Value a, Value b) { return e_.ir().CreateSub(a, b); }
  Value One(Value like) { return llvm::ConstantInt::get(like->getType(), 1); }
  Value Zero(Value like) { return llvm::Constant::getNullValue(like->getType()); }
  Value Splat(Value value, int width) {
    return width == 1 ? value : e_.ir().CreateVectorSplat(static_cast<unsigned>(width), value);
  }
  Value Narrow(Value value, int width) {  // an i64 to a vector of i32; scalars stay i64
    return width == 1 ? value : Splat(e_.ir().CreateTrunc(value, e_.ir().getInt32Ty()), width);
  }
  // Returns 0, 1, 2, ... as i32.
  Value Steps(int width);

  // Loads base[offset + positions * stride] for an i64 position, or (host) for each of a vector of i32.
  // `adjacent`: the stride is 1.
  Value LoadAt(ops::DType type, Value base, Value offset, Value positions, Value stride, bool adjacent,
               Scalar as);

 private:
  Emitter& e_;
};

}  // namespace xpud::kernels
