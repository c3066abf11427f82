// Special functions in long double, by other ways than the kernels'. For moderate arguments; slow.
#pragma once

#include "kernels/compiler/formulas.h"
#include "kernels/testing/tensor.h"

namespace xpud::kernels {

// Returns a function of the one or two operands of `op`, or nullptr if there is none here.
Exact (*SpecialReference(Op op))(Exact, Exact);

}  // namespace xpud::kernels
