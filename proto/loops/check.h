// What is checked of a loop kernel once, when it is defined, and what follows from it for each statement.
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/loops/kernel.h"

namespace xpud::loops {

struct StatementInfo {
  // Of its value, if it has one; of a reduction with several values, the first. An argmin's second value is
  // int64, all others have the type of the first.
  bool has_value = false;
  DType type = DType::kFloat32;
  bool is_inner = false;   // it runs at each reduced position
  uint32_t block = kNone;  // the innermost mask that it runs under
};

struct BodyInfo {
  std::vector<StatementInfo> statements;
  std::vector<bool>
      index_is_inner;  // of each node: it depends on a reduced iterator, or on an inner statement
};

struct KernelInfo {
  std::vector<BodyInfo> bodies;
};

// Checks everything that does not depend on a call: that what is referred to is there and was defined before,
// types, the use of operands by their roles, and that nothing is unused, so that equal kernels are equal.
// Returns InvalidArgument that names body, statement and operand, with what was found and what is allowed.
absl::StatusOr<KernelInfo> CheckKernel(const Kernel& kernel);

}  // namespace xpud::loops
