// Registers the rows of the op table with PyTorch's dispatcher. Called once, after all static registrations.
#pragma once

namespace xpud::shim {

// For each ATen overload that a row names: its functional, in-place and out= variants, unless one was
// registered by hand. Then in-place and out= variants of what was registered by hand, which copy the
// functional result.
void RegisterOpTable();

}  // namespace xpud::shim
