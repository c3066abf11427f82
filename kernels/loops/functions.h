// The functions of loop kernels as those of formulas (proto/ops/formula), which has their code and their
// reference.
#pragma once

#include "kernels/compiler/formulas.h"
#include "proto/loops/kernel.h"

namespace xpud::kernels {

Op OpOf(loops::Function function);
// Returns the random number of a seed a at a position, which is the formula's index.
Op OpOf(loops::Random random);

// An operation on variables a, b and c.
struct FunctionFormula {
  FunctionFormula(Op op, int arity);
  Expression expression;
  NodeId root = 0;
};

}  // namespace xpud::kernels
