// Runs any row whose family infers its outputs. An operator's arguments are matched to the family's operands
// and attributes by name.
#pragma once

#include <ATen/core/boxing/KernelFunction.h>

#include "proto/ops/family.h"

namespace xpud::shim {

// Returns true if BoxedOp can run the operator. Each tensor and attribute of the family must be an argument
// of the same name. The results must be the family's outputs, or arguments of their names that the operator
// writes. An argument "dtype" chooses the dtype of a sum. The last inputs of a
// sized family are results of its sizing row, not arguments.
bool FitsSchema(const ops::Row& row, const c10::FunctionSchema& schema);

class BoxedOp final : public c10::OperatorKernel {
 public:
  explicit BoxedOp(const ops::Row& row) : row_(row), family_(ops::DescriptorOf(row)) {}

  // Falls back if an input is not on the device, has more than ops::kMaxRank dimensions, or has a dtype that
  // the row does not support. Throws IndexError for a dimension out of range, and RuntimeError for shapes
  // that do not fit. A sized family waits for the size of its result.
  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack);

 private:
  const ops::Row& row_;
  const ops::FamilyDescriptor& family_;
};

}  // namespace xpud::shim
