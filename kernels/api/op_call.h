// A validated op, as planners take it. Plain values; the library's thread.
#pragma once

#include <cstdint>

#include "proto/ops/operand.h"

namespace xpud::kernels {

using ops::Operand;
// Shapes, types and bounds follow the row's family (proto/ops/check.h); no operand overlaps an output except
// exactly (in-place). There are row->inputs inputs.
using OpCall = ops::Call;

// What kernels store in OpCall::error_word: code in the low 8 bits, the offending value (truncated) above.
enum class DeviceError : uint8_t { kNone = 0, kIndexOutOfRange = 1 };

}  // namespace xpud::kernels
