// Any row whose family infers its outputs: an operator's arguments are matched to the family's operands and
// attributes by name.
#pragma once

#include <ATen/core/boxing/KernelFunction.h>

#include "proto/ops/family.h"

namespace xpud::shim {

// Whether BoxedOp can serve the operator: each tensor and attribute of the family is an argument of this
// name, and the results are the family's outputs (or arguments of these names, that it writes to). "dtype"
// chooses the type of sums. A sized family's last inputs are no arguments: its sizing row gives them.
bool FitsSchema(const ops::Row& row, const c10::FunctionSchema& schema);

class BoxedOp final : public c10::OperatorKernel {
 public:
  explicit BoxedOp(const ops::Row& row) : row_(row), family_(ops::DescriptorOf(row)) {}

  // Falls back where an input lies elsewhere, has more dimensions than the wire takes, or a type that the row
  // does not take. A sized family waits for the size of its result. IndexError for a dimension out of range,
  // RuntimeError for shapes that do not fit.
  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack);

 private:
  const ops::Row& row_;
  const ops::FamilyDescriptor& family_;
};

}  // namespace xpud::shim
