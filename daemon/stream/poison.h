// Which of an op's operands hold contents that must not be used. REQUIRES: the lane's thread.
#pragma once

#include "daemon/handles/buffer_table.h"
#include "daemon/stream/op.h"
#include "daemon/stream/queue_errors.h"

namespace xpud::stream {

// Returns memory that the op would read and whose contents must not be used, or nullptr.
const memory::Allocation* FindPoison(const CheckedOp& op);

// Command `sequence` of a queue reads poison: raises its error, or one about it, if another session has
// poisoned the memory. Returns the fault of what the command does not write.
memory::Fault RaisePoison(QueueErrors& errors, const handles::BufferTable& buffers, uint32_t queue,
                          uint64_t sequence, const memory::Allocation& poisoned);

// Leaves out the elements of corresponding lists that read poison, and poisons their outputs. `fault`: of the
// first poison that is read, as its error was raised; stands for what other sessions have poisoned.
// Returns false if nothing remains, or if the op has no such lists or all elements read the poison: then it
// is skipped whole.
bool SkipPoisonedElements(CheckedOp& op, handles::BufferTable& buffers, memory::Fault fault);

}  // namespace xpud::stream
