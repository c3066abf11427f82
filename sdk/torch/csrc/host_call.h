// Runs one operator on the CPU with copies of its device tensors. This is what a fallback does.
//
// Tensors that share memory on the device share it on the host too, with the same strides, so aliasing,
// overlap and as_strided behave as they do in a program that runs on the CPU.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

namespace xpud::shim {

// Replaces the arguments of `op` on the stack by its results, as a kernel does.
//
// Tensors that the operator writes are copied back: those that the schema marks, and those that it fails to
// mark (native_batch_norm's running statistics). A result that is an argument, or a view of one, is that
// device tensor, or a view of it. Raises what the CPU kernel raises; RuntimeError where arguments lie on
// different devices (CPU tensors without dimensions are taken everywhere); NotImplementedError where the CPU
// has no kernel either.
void CallOnHost(const c10::OperatorHandle& op, torch::jit::Stack* stack);

}  // namespace xpud::shim
