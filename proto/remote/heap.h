// Allocator settings for the programs of a remote session.
#pragma once

#include <malloc.h>

namespace xpud::remote {

// gRPC allocates memory for each read. By default glibc returns the end of its heap to the system when 128
// KiB are free there, and faulting the pages in again takes longer than receiving the data. Call first in
// main.
inline void KeepFreedMemory() {
  constexpr int kKeptBytes = 16 << 20, kMaxHeapBlock = 4 << 20;
  mallopt(M_TRIM_THRESHOLD, kKeptBytes);
  mallopt(M_MMAP_THRESHOLD, kMaxHeapBlock);
}

}  // namespace xpud::remote
