// The heap of a remote session's programs.
#pragma once

#include <malloc.h>

namespace xpud::remote {

// gRPC receives into memory that it allocates for each read. glibc gives the end of its heap back to the
// system as soon as 128 KiB are free there, and to get it again, page by page, takes longer than to receive
// what goes in. First in main.
inline void KeepFreedMemory() {
  constexpr int kKeptBytes = 16 << 20, kMaxHeapBlock = 4 << 20;
  mallopt(M_TRIM_THRESHOLD, kKeptBytes);
  mallopt(M_MMAP_THRESHOLD, kMaxHeapBlock);
}

}  // namespace xpud::remote
