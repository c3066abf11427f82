// Which of an op's operands hold contents that must not be used. REQUIRES: the lane's thread.
#pragma once

#include "daemon/handles/buffer_table.h"
#include "daemon/stream/op.h"

namespace xpud::stream {

// Returns whether the op would read contents that must not be used.
bool ReadsPoison(const CheckedOp& op);

// Leaves out the elements of corresponding lists that read poison, and poisons their outputs. Returns false
// if nothing remains, or if the op has no such lists or all elements read the poison: then it is skipped
// whole.
bool SkipPoisonedElements(CheckedOp& op, handles::BufferTable& buffers);

}  // namespace xpud::stream
