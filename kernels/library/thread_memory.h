// Memory of a worker beyond its scratch, for the few tiles that need more. It grows on demand, the thread
// keeps it, and its contents are undefined.
#pragma once

#include <cstddef>

namespace xpud::kernels {

// Returns memory aligned to 4096 bytes, valid until this thread's next call.
std::byte* ThreadMemory(size_t bytes);

}  // namespace xpud::kernels
