// Memory of a worker beyond its scratch, for the few tiles that need more: grown on demand, kept by the
// thread, contents undefined.
#pragma once

#include <cstddef>

namespace xpud::kernels {

// 4096-byte aligned; valid until this thread's next call.
std::byte* ThreadMemory(size_t bytes);

}  // namespace xpud::kernels
