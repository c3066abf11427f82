// Compiles a call's kernels for the GPU targets, for tests on a machine that has neither. One thread.
#pragma once

#include "kernels/dispatch/kernel_library.h"

namespace xpud::kernels {

// OK when `call` plans for NVPTX and for SPIR-V, and every launch names an entry of a module in that target's
// format, which ptxas or spirv-val accepts where it is installed.
absl::Status CompileForGpus(const OpCall& call);

}  // namespace xpud::kernels
