#include "kernels/families/sort_order.h"

#include "proto/ops/families/order.h"

namespace xpud::kernels {

namespace {

using Value = Emitter::Value;

uint64_t InfinityOf(ops::DType type) {
  switch (type) {
    case ops::DType::kFloat16:
      return 0x7c00;
    case ops::DType::kBFloat16:
      return 0x7f80;
    case ops::DType::kFloat32:
      return 0x7f800000;
    default:
      return 0x7ff0000000000000;
  }
}

bool IsUnsigned(ops::DType type) { return type == ops::DType::kBool || type == ops::DType::kUInt8; }

Value SignOf(Value bits) {
  return llvm::ConstantInt::get(bits->getType(),
                                llvm::APInt::getSignMask(bits->getType()->getScalarSizeInBits()));
}

}  // namespace

SortedLines LinesToSort(const OpCall& call) {
  const auto sort = ops::Read<ops::SortCall>(call);
  const Operand &values = *sort.values, &indices = *sort.indices, &self = *sort.self;
  const auto dim = static_cast<size_t>(sort.dim);
  SortedLines lines;
  Operand shape = self;
  if (self.rank > 0) {
    lines.n = self.sizes[dim];
    lines.k = values.sizes[dim];
    lines.strides = {values.strides[dim], indices.strides[dim], self.strides[dim]};
    shape.sizes[dim] = 1;
  }
  lines.layout = Layout::Over(shape);
  for (const Operand* const operand : {&values, &indices, &self}) lines.layout.AddOperand(*operand);
  lines.layout.Collapse(/*may_permute=*/true);
  lines.type = self.dtype;
  lines.descending = sort.descending;
  return lines;
}

Value OrderOf(Emitter& e, ops::DType type, bool descending, Value bits) {
  llvm::IRBuilder<>& ir = e.ir();
  Value const top = SignOf(bits), zero = llvm::Constant::getNullValue(bits->getType());
  Value order = bits;
  if (type == ops::DType::kBool) {
    order = ir.CreateZExt(ir.CreateICmpNE(bits, zero), bits->getType());
  } else if (ops::IsFloating(type)) {
    Value const magnitude = ir.CreateAnd(bits, ir.CreateNot(top));
    Value const number = ir.CreateSelect(ir.CreateICmpEQ(magnitude, zero), zero, bits);
    Value const negative = ir.CreateICmpSLT(number, zero);
    order = ir.CreateSelect(negative, ir.CreateNot(number), ir.CreateXor(number, top));
    Value const nan = ir.CreateICmpUGT(magnitude, llvm::ConstantInt::get(bits->getType(), InfinityOf(type)));
    order = ir.CreateSelect(nan, llvm::ConstantInt::getAllOnesValue(bits->getType()), order);
  } else if (!IsUnsigned(type)) {
    order = ir.CreateXor(bits, top);
  }
  return descending ? ir.CreateNot(order) : order;
}

Unordered FromOrder(Emitter& e, ops::DType type, bool descending, Value order) {
  llvm::IRBuilder<>& ir = e.ir();
  if (descending) order = ir.CreateNot(order);
  if (IsUnsigned(type)) return {order, ir.getTrue()};
  Value const top = SignOf(order), positive = ir.CreateXor(order, top);
  if (!ops::IsFloating(type)) return {positive, ir.getTrue()};
  Value const negative = ir.CreateICmpSGE(order, llvm::Constant::getNullValue(order->getType()));
  Value const is_nan = ir.CreateICmpEQ(order, llvm::Constant::getAllOnesValue(order->getType()));
  return {ir.CreateSelect(negative, ir.CreateNot(order), positive),
          ir.CreateNot(ir.CreateOr(ir.CreateICmpEQ(order, top), is_nan))};
}

}  // namespace xpud::kernels
