// What operations of formulas cost, roughly. Plain functions.
#pragma once

#include "kernels/compiler/formulas.h"

namespace xpud::kernels {

// Nanoseconds for an element in a vectorised f32 loop of one core.
inline float NanosecondsOf(Op op) {
  if (IsSpecial(op)) return 16;
  if (op > Op::kRandint) return 40;
  switch (op) {
    case Op::kVariable:
    case Op::kInteger:
    case Op::kReal:
      return 0;
    case Op::kSin:
    case Op::kCos:
    case Op::kTan:
      return 2;
    case Op::kPow:
    case Op::kRand:
    case Op::kAtan2:
      return 3;
    case Op::kFmod:
    case Op::kRemainder:
    case Op::kFloordiv:
    case Op::kTruncdiv:
    case Op::kRandn:
    case Op::kErfinv:
      return 8;
    default:
      return op >= Op::kExp && op <= Op::kSigmoid ? 0.4f : 0.04f;
  }
}

}  // namespace xpud::kernels
