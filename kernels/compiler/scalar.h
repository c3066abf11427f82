// The types in which kernels compute. Plain functions.
#pragma once

#include <cstddef>

#include "kernels/api/launch.h"
#include "proto/ops/dtype.h"

namespace xpud::kernels {

// Element types in registers. 16-bit floats are kept only in memory.
enum class Scalar : uint8_t { kBool, kU8, kI8, kI16, kI32, kI64, kF32, kF64 };

constexpr bool IsFloat(Scalar s) { return s >= Scalar::kF32; }

// Returns the type in which an element is computed.
constexpr Scalar ScalarOf(ops::DType type) {
  switch (type) {
    case ops::DType::kBool:
      return Scalar::kBool;
    case ops::DType::kUInt8:
      return Scalar::kU8;
    case ops::DType::kInt8:
      return Scalar::kI8;
    case ops::DType::kInt16:
      return Scalar::kI16;
    case ops::DType::kInt32:
      return Scalar::kI32;
    case ops::DType::kInt64:
      return Scalar::kI64;
    case ops::DType::kFloat64:
      return Scalar::kF64;
    default:
      return Scalar::kF32;
  }
}

// Returns the integer type of `bytes` bytes. Kernels that only move elements use it, for all types.
constexpr ops::DType BitsOf(size_t bytes) {
  if (bytes == 8) return ops::DType::kInt64;
  return bytes == 4 ? ops::DType::kInt32 : bytes == 2 ? ops::DType::kInt16 : ops::DType::kUInt8;
}

// Returns the type in which a reduction accumulates.
constexpr Scalar AccumulateOf(ops::DType type) {
  if (type == ops::DType::kFloat64) return Scalar::kF64;
  return ops::IsFloating(type) ? Scalar::kF32 : Scalar::kI64;
}

// Returns the type in which an immediate is passed: i64 for integers and bools.
constexpr ArgType ImmediateArg(Scalar scalar) {
  if (scalar == Scalar::kF32) return ArgType::kF32;
  return scalar == Scalar::kF64 ? ArgType::kF64 : ArgType::kI64;
}

}  // namespace xpud::kernels
