// Which of an op's operands hold contents that must not be used. REQUIRES: the lane's thread.
#pragma once

#include "daemon/handles/buffer_table.h"
#include "daemon/stream/op.h"

namespace xpud::stream {

// Returns memory that the op would read and whose contents must not be used, or nullptr.
const memory::Allocation* FindPoison(const CheckedOp& op);

// Leaves out the elements of corresponding lists that read poison, and poisons their outputs, for `queue`.
// Returns false if nothing remains, or if the op has no such lists or all elements read the poison: then it
// is skipped whole.
bool SkipPoisonedElements(CheckedOp& op, handles::BufferTable& buffers, uint32_t queue);

}  // namespace xpud::stream
