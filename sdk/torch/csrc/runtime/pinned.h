// Pinned memory: CPU tensors in host memory that the process shares with the daemon. Thread-safe.
#pragma once

#include <c10/core/Allocator.h>

namespace xpud::shim {

// Returns our allocator. It allocates ordinary memory, with one warning, if the daemon refuses. Returns
// CUDA's allocator if the process uses CUDA and has not used xpud.
c10::Allocator* PinnedAllocator();

// Returns true for our pinned memory, and for CUDA's if the process uses CUDA. Does not connect.
bool IsPinned(const void* address);

// Returns true if PyTorch was built with CUDA and this process has a context on a CUDA device.
bool UsesCuda();

}  // namespace xpud::shim
