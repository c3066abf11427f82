#include "kernels/families/window_emission.h"

namespace xpud::kernels {

using Value = llvm::Value*;

namespace {

int WidthOf(Value value) {
  const auto* const vector = llvm::dyn_cast<llvm::FixedVectorType>(value->getType());
  return vector == nullptr ? 1 : static_cast<int>(vector->getNumElements());
}

}  // namespace

// No target divides vectors of integers. f64 quotients of integers below 2^31 have the right floor.
Value WindowEmission::Divide(Value a, Value b) {
  Value const numerator = Max(a, Zero(a));
  const int width = WidthOf(a);
  if (width == 1) return e_.ir().CreateUDiv(numerator, b);
  llvm::Type* const real = e_.TypeOf(Scalar::kF64, width);
  Value const quotient =
      e_.ir().CreateFDiv(e_.ir().CreateSIToFP(numerator, real), e_.ir().CreateSIToFP(b, real));
  return e_.ir().CreateFPToSI(quotient, a->getType());
}

Value WindowEmission::Steps(int width) {
  std::vector<uint32_t> steps;
  for (int i = 0; i < width; ++i) steps.push_back(static_cast<uint32_t>(i));
  return llvm::ConstantDataVector::get(e_.ir().getContext(), steps);
}

Value WindowEmission::LoadAt(ops::DType type, Value base, Value offset, Value positions, Value stride,
                             bool adjacent, Scalar as) {
  const int width = WidthOf(positions);
  if (width == 1) return e_.Load(type, base, e_.Add(offset, e_.Mul(positions, stride)), as);
  auto& ir = e_.ir();
  Value at = positions;
  if (!adjacent) {
    at = ir.CreateMul(ir.CreateSExt(at, llvm::FixedVectorType::get(ir.getInt64Ty(), kGatherWidth)),
                      Splat(stride, width));
  }
  llvm::Type* const element = e_.StorageOf(type);
  Value const addresses = ir.CreateInBoundsGEP(element, e_.Address(type, base, offset), at);
  Value const all = llvm::Constant::getAllOnesValue(llvm::FixedVectorType::get(ir.getInt1Ty(), kGatherWidth));
  Value const loaded =
      ir.CreateMaskedGather(llvm::FixedVectorType::get(element, static_cast<unsigned>(width)), addresses,
                            llvm::Align(ops::SizeOf(type)), all);
  return e_.FromStorage(type, loaded, as);
}

}  // namespace xpud::kernels
