// Pinned memory: host memory that this process shares with the daemon, behind tensors of the CPU. Any thread.
#pragma once

#include <c10/core/Allocator.h>

namespace xpud::shim {

// Where the daemon gives none, ordinary memory, with one warning. Where the process uses CUDA and has not
// used xpud, CUDA's: somebody pins memory for it.
c10::Allocator* PinnedAllocator();

// Ours, or CUDA's where the process uses that. Connects to nothing.
bool IsPinned(const void* address);

// Whether this process has a context on a CUDA device, and PyTorch was built with CUDA.
bool UsesCuda();

}  // namespace xpud::shim
