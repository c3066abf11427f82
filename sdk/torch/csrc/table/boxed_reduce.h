// Runs rows of family kReduce as operators. Thread-safe.
#pragma once

#include <ATen/core/boxing/KernelFunction.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include "proto/ops/op_table.h"

namespace xpud::shim {

// A functional reduction. Finds self, dim, keepdim, dtype, ord and correction by their names in the schema.
class BoxedReduce final : public c10::OperatorKernel {
 public:
  explicit BoxedReduce(const ops::Row& row) : row_(row) {}
  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack);

 private:
  const ops::Row& row_;
};

}  // namespace xpud::shim
