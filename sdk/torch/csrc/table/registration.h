// Registers the rows of the op table with PyTorch's dispatcher. Called once, after all static registrations.
#pragma once

#include "proto/ops/op_table.h"

namespace xpud::shim {

// Registers the functional, in-place and out= variants of each ATen overload that a row names, except those
// registered by hand. Then registers in-place and out= variants of operators registered by hand, which copy
// the functional result.
void RegisterOpTable();

// From now on, operators of rows that the daemon lacks fall back, in all their variants. Called when a
// session begins with a daemon older than this shim.
void FallBackWithout(const ops::RowSet& known);

}  // namespace xpud::shim
