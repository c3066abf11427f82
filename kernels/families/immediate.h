// Numbers of a command as kernel arguments. Plain functions; engine thread.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "kernels/api/launch.h"
#include "proto/ops/op_table.h"

namespace xpud::kernels {

// Out-of-range reals saturate, NaN is 0: never undefined.
inline int64_t SaturatedInteger(const ops::Number& number) {
  if (number.is_integer) return number.integer;
  if (std::isnan(number.real)) return 0;
  if (number.real >= 0x1p63) return std::numeric_limits<int64_t>::max();
  return number.real < -0x1p63 ? std::numeric_limits<int64_t>::min() : static_cast<int64_t>(number.real);
}

// As a value of `compute`: see ImmediateArg in compiler/emitter.h.
inline void PushImmediate(const ops::Number& number, ops::DType compute, Launch& launch) {
  if (compute == ops::DType::kFloat64) {
    launch.Push(number.AsReal());
  } else if (ops::IsFloating(compute)) {
    launch.Push(static_cast<float>(number.AsReal()));
  } else if (compute == ops::DType::kBool) {
    launch.Push(static_cast<int64_t>(number.is_integer ? number.integer != 0 : number.real != 0));
  } else {
    launch.Push(SaturatedInteger(number));
  }
}

}  // namespace xpud::kernels
