// Operators on complex tensors, computed by operators on their real and imaginary parts.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

namespace xpud::shim {

// Runs `op`, in any of its variants, on the device. Shapes, dtypes, strides and errors are those of ATen's
// meta kernels. Returns false, with the stack unchanged, if no argument or result is complex, or if the
// operator is not among those of complex.cc; the caller then falls back. Thread-safe.
bool RunComplex(const c10::OperatorHandle& op, torch::jit::Stack* stack);

}  // namespace xpud::shim
