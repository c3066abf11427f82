// Emitter: types, constants, and conversions of values.
#include "kernels/compiler/emitter.h"

namespace xpud::kernels {

using llvm::Type;
using ops::DType;

namespace {

bool IsUnsigned(Scalar scalar) { return scalar == Scalar::kBool || scalar == Scalar::kU8; }

// Disables contraction, so that two consecutive roundings (f64 to f32 to f16) stay two: a single one would be
// a library call.
Emitter::Value Plain(Emitter::Value value) {
  if (auto* const instruction = llvm::dyn_cast<llvm::Instruction>(value))
    instruction->copyFastMathFlags(llvm::FastMathFlags());
  return value;
}

}  // namespace

Type* Emitter::TypeOf(Scalar scalar, int width) {
  Type* type = nullptr;
  switch (scalar) {
    case Scalar::kBool:
      type = ir_.getInt1Ty();
      break;
    case Scalar::kU8:
    case Scalar::kI8:
      type = ir_.getInt8Ty();
      break;
    case Scalar::kI16:
      type = ir_.getInt16Ty();
      break;
    case Scalar::kI32:
      type = ir_.getInt32Ty();
      break;
    case Scalar::kI64:
      type = ir_.getInt64Ty();
      break;
    case Scalar::kF32:
      type = ir_.getFloatTy();
      break;
    case Scalar::kF64:
      type = ir_.getDoubleTy();
      break;
  }
  return width > 1 ? llvm::FixedVectorType::get(type, static_cast<unsigned>(width)) : type;
}

Type* Emitter::StorageOf(DType type) {
  switch (type) {
    case DType::kFloat16:
      return ir_.getHalfTy();
    case DType::kBFloat16:
      return ir_.getInt16Ty();
    case DType::kFloat32:
      return ir_.getFloatTy();
    case DType::kFloat64:
      return ir_.getDoubleTy();
    default:
      return ir_.getIntNTy(static_cast<unsigned>(ops::SizeOf(type) * 8));
  }
}

Emitter::Value Emitter::Constant(Scalar scalar, double value, int width) {
  Type* const type = TypeOf(scalar, width);
  if (IsFloat(scalar)) return llvm::ConstantFP::get(type, value);
  return llvm::ConstantInt::getSigned(type, static_cast<int64_t>(value));
}

Emitter::Value Emitter::IntegerConstant(Scalar scalar, int64_t value, int width) {
  Type* const type = TypeOf(scalar, width);
  if (IsFloat(scalar)) return llvm::ConstantFP::get(type, static_cast<double>(value));
  const unsigned bits = type->getScalarSizeInBits();
  return llvm::ConstantInt::get(
      type, llvm::APInt(bits, static_cast<uint64_t>(value), false, /*implicitTrunc=*/true));
}

Emitter::Value Emitter::Convert(Value value, Scalar from, Scalar to) {
  if (from == to) return value;
  const auto* const vector = llvm::dyn_cast<llvm::FixedVectorType>(value->getType());
  const int width = vector ? static_cast<int>(vector->getNumElements()) : 1;
  Type* const target = TypeOf(to, width);
  if (to == Scalar::kBool) {
    Value const zero = llvm::Constant::getNullValue(value->getType());
    return IsFloat(from) ? ir_.CreateFCmpUNE(value, zero) : ir_.CreateICmpNE(value, zero);
  }
  if (IsFloat(from)) {
    if (IsFloat(to)) return Plain(ir_.CreateFPCast(value, target));
    // Out-of-range values are unspecified, as in ATen, but not undefined: the result is frozen. Small types
    // go through i32.
    if (to == Scalar::kI64 || to == Scalar::kI32) return ir_.CreateFreeze(ir_.CreateFPToSI(value, target));
    return ir_.CreateTrunc(ir_.CreateFreeze(ir_.CreateFPToSI(value, TypeOf(Scalar::kI32, width))), target);
  }
  if (IsFloat(to))
    return IsUnsigned(from) ? ir_.CreateUIToFP(value, target) : ir_.CreateSIToFP(value, target);
  return ir_.CreateIntCast(value, target, !IsUnsigned(from));
}

Emitter::Value Emitter::FromStorage(DType type, Value raw, Scalar as) {
  if (type == DType::kBool) {
    return Convert(ir_.CreateICmpNE(raw, llvm::Constant::getNullValue(raw->getType())), Scalar::kBool, as);
  }
  if (!ops::IsFloating(type) || ops::SizeOf(type) > 2) return Convert(raw, ScalarOf(type), as);
  const auto* const vector = llvm::dyn_cast<llvm::FixedVectorType>(raw->getType());
  const int width = vector ? static_cast<int>(vector->getNumElements()) : 1;
  Type* const f32 = TypeOf(Scalar::kF32, width);
  Value value = nullptr;
  if (type == DType::kBFloat16) {
    Value const wide = ir_.CreateZExt(raw, TypeOf(Scalar::kI32, width));
    value = ir_.CreateBitCast(ir_.CreateShl(wide, 16), f32);
  } else {
    value = Plain(ir_.CreateFPExt(raw, f32));
  }
  return Convert(value, Scalar::kF32, as);
}

Emitter::Value Emitter::ToStorage(DType type, Value value, Scalar from) {
  const auto* const vector = llvm::dyn_cast<llvm::FixedVectorType>(value->getType());
  const int width = vector ? static_cast<int>(vector->getNumElements()) : 1;
  if (type == DType::kBool)
    return ir_.CreateZExt(Convert(value, from, Scalar::kBool), TypeOf(Scalar::kU8, width));
  value = Convert(value, from, ScalarOf(type));
  if (type == DType::kFloat16) {
    Type* half = ir_.getHalfTy();
    if (width > 1) half = llvm::FixedVectorType::get(half, static_cast<unsigned>(width));
    return Plain(ir_.CreateFPTrunc(value, half));
  }
  if (type != DType::kBFloat16) return value;
  if (target_ == Target::kNvptx && width == 1)
    return ir_.CreateBitCast(RoundToBrain(value), ir_.getInt16Ty());
  // Rounds to nearest even with integer operations, which every target has. NaN stays NaN.
  Type* const i32 = TypeOf(Scalar::kI32, width);
  Value const bits = ir_.CreateBitCast(value, i32);
  Value const odd = ir_.CreateAnd(ir_.CreateLShr(bits, 16), llvm::ConstantInt::get(i32, 1));
  Value const rounded =
      ir_.CreateLShr(ir_.CreateAdd(bits, ir_.CreateAdd(odd, llvm::ConstantInt::get(i32, 0x7fff))), 16);
  Value const result =
      ir_.CreateSelect(ir_.CreateFCmpUNO(value, value), llvm::ConstantInt::get(i32, 0x7fc0), rounded);
  return ir_.CreateTrunc(result, TypeOf(Scalar::kI16, width));
}

// In hardware, from sm_80 on. Rounds like the integer code of ToStorage, except for the bits of a NaN.
Emitter::Value Emitter::RoundToBrain(Value value) {
  return Plain(ir_.CreateFPTrunc(value, ir_.getBFloatTy()));
}

}  // namespace xpud::kernels
