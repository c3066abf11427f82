// For each row of the op table, a valid call, from which hostile calls differ slightly.
#pragma once

#include <vector>

#include "tests/conformance/isolation/commands.h"
#include "tests/conformance/isolation/hostile_session.h"

namespace xpud::isolation {

inline constexpr uint64_t kOperandBytes = 4096;  // of each operand's buffer

struct Call {
  const ops::Row* row = nullptr;
  ops::DType compute = ops::DType::kFloat32;
  std::vector<View> outputs, inputs;
  std::vector<ops::Number> attributes;
  std::vector<uint16_t> lists;

  std::vector<std::byte> bytes() const { return Execute(*row, compute, outputs, inputs, attributes, lists); }
  std::vector<View*> operands();  // outputs, then inputs
};

// Its operands are in buffers 1, 2, ... of generation 1, outputs first, at their starts; indices are at
// most 1. A loop kernel is number 1.
Call RightCall(const ops::Row& row);
// The same with this type, which must be one of the row's dtypes.
Call RightCall(const ops::Row& row, ops::DType type);
// Allocates the buffers of RightCall, with zeros, and defines its loop kernel.
void PutOperands(HostileSession& session);
// The loop kernel of RightCall, as bytes.
std::string SampleKernel();

}  // namespace xpud::isolation
