#include "kernels/loops/functions.h"

#include "proto/base/check.h"

namespace xpud::kernels {

Op OpOf(loops::Function function) {
  using loops::Function;
  // The others have the names of the formula language.
  static constexpr struct {
    Function function;
    Op op;
  } kOperators[] = {
      {Function::add, Op::kAdd},
      {Function::sub, Op::kSub},
      {Function::mul, Op::kMul},
      {Function::div, Op::kDiv},
      {Function::eq, Op::kEq},
      {Function::ne, Op::kNe},
      {Function::lt, Op::kLt},
      {Function::le, Op::kLe},
      {Function::gt, Op::kGt},
      {Function::ge, Op::kGe},
      {Function::logical_not, Op::kNot},
      {Function::logical_and, Op::kAnd},
      {Function::logical_or, Op::kOr},
      {Function::bitwise_and, Op::kBitAnd},
      {Function::bitwise_or, Op::kBitOr},
      {Function::bitwise_xor, Op::kBitXor},
      {Function::bitwise_not, Op::kBitNot},
      {Function::shift_left, Op::kShl},
      {Function::shift_right, Op::kShr},
  };
  for (const auto& known : kOperators)
    if (known.function == function) return known.op;
  const loops::FunctionInfo& info = *loops::FindFunction(static_cast<uint64_t>(function));
  const Op op = FunctionNamed(info.name, info.arity);
  XPUD_CHECK(op != Op::kVariable);
  return op;
}

Op OpOf(loops::Random random) {
  static constexpr Op kOps[] = {Op::kRand, Op::kRandn, Op::kRandint};
  return kOps[static_cast<size_t>(random)];
}

FunctionFormula::FunctionFormula(Op op, int arity) {
  Node node;
  node.op = op;
  node.arity = static_cast<uint8_t>(arity);
  for (int i = 0; i < arity; ++i) {
    Node variable;
    variable.op = Op::kVariable;
    variable.variable = static_cast<Variable>(i);
    node.operands[static_cast<size_t>(i)] = expression.Add(variable);
  }
  root = expression.Add(node);
}

}  // namespace xpud::kernels
