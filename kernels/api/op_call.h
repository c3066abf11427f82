// A validated op, the input of planners. Plain values; the library's thread.
#pragma once

#include <cstdint>

#include "proto/ops/operand.h"

namespace xpud::kernels {

using ops::Operand;
// Shapes, types and bounds follow the row's family (proto/ops/check.h). No operand overlaps an output unless
// it is the same view (in-place). There are row->inputs inputs.
using OpCall = ops::Call;

// The code that kernels store in the low 8 bits of OpCall::error_word. The offending value, truncated, is
// above.
enum class DeviceError : uint8_t { kNone = 0, kIndexOutOfRange = 1, kAssertion = 2 };
// A loop kernel stores the index in so many bits, signed, and above them the number of its statement, counted
// over all bodies.
inline constexpr int kLoopIndexBits = 44;

}  // namespace xpud::kernels
