// Registers the rows of the op table with PyTorch's dispatcher. Called once, after all static registrations.
#pragma once

#include "proto/ops/op_table.h"

namespace xpud::shim {

// For each ATen overload that a row names: its functional, in-place and out= variants, unless one was
// registered by hand. Then in-place and out= variants of what was registered by hand, which copy the
// functional result.
void RegisterOpTable();

// From here on the operators of rows that the daemon lacks fall back, in all their variants. Called when a
// session with a daemon begins that is older than this shim.
void FallBackWithout(const ops::RowSet& known);

}  // namespace xpud::shim
