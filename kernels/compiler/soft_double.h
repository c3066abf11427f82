// Replaces the arithmetic of doubles in a module by integers, for devices without doubles (Intel's Arc A).
// The results are the same, bit for bit, apart from the bits of a NaN; an operation takes 20 to 400
// instructions. Run on optimised code: doubles in vectors and structures are not expected.
#pragma once

#include "absl/status/status.h"
#include "llvm/IR/Module.h"

namespace xpud::kernels {

// Afterwards no type in `module` contains a double; a kernel's argument that was one has its 64 bits. Calls
// of soft_double.c's functions are left, to be linked. Returns Internal for an operation that is not known
// here.
absl::Status ReplaceDoubles(llvm::Module& module);

}  // namespace xpud::kernels
