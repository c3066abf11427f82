// Runs one operator on the CPU with copies of its device tensors. Fallbacks use it.
//
// Tensors that share memory on the device also share it on the host, with the same strides. So aliasing,
// overlap and as_strided behave as in a program that runs on the CPU.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

namespace xpud::shim {

// Replaces the arguments of `op` on the stack by its results, as a kernel does.
//
// Tensors that the operator writes are copied back. These are the tensors that the schema marks, and those
// that it fails to mark (native_batch_norm's running statistics). If a result is an argument, or a view of
// one, the device tensor or a view of it is returned. Raises the CPU kernel's errors. Raises RuntimeError if
// arguments are on different devices (a CPU tensor without dimensions is always accepted), and
// NotImplementedError if the CPU has no kernel either.
// Raises PyTorch's error if it writes tensors whose elements share memory, unless MayWriteOverlap.
void CallOnHost(const c10::OperatorHandle& op, torch::jit::Stack* stack);

// Whether the CPU's kernel writes tensors whose elements share memory. Others raise an error, or cannot write
// them but do not check.
bool MayWriteOverlap(const c10::OperatorHandle& op);

}  // namespace xpud::shim
