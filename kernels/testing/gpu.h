// Compiles a call's kernels for the GPU targets, for tests on a machine without GPUs. Used by one thread.
#pragma once

#include "kernels/dispatch/kernel_library.h"

namespace xpud::kernels {

// Returns OK if `call` can be planned for NVPTX and for SPIR-V, and each launch names an entry of a module in
// that target's format. ptxas or spirv-val must accept the module, if installed.
absl::Status CompileForGpus(const OpCall& call);

}  // namespace xpud::kernels
