// Sends one matrix product. For operators that consist of several.
#pragma once

#include "sdk/torch/csrc/call/operand.h"

namespace xpud::shim {

inline const ops::Row& ProductRow() {
  static const ops::Row& row = ops::RowOf("mm");
  return row;
}

// out = alpha * a b + beta * c, of matrices (rank 2) or stacks of them (rank 3) of one floating type. An
// absent c is not added; c may be out. Sizes must fit, and none may be 0.
void LaunchProduct(const TensorRef& out, const TensorRef& a, const TensorRef& b, const TensorRef& c,
                   double beta, double alpha, int device);

}  // namespace xpud::shim
