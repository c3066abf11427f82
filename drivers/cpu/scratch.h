// Memory that a kernel invocation may use freely: XPUD_HOST_SCRATCH_BYTES for each thread that runs kernels,
// populated as it is touched and given back when the thread ends.
#pragma once

namespace xpud::drivers::cpu {

// This thread's scratch, 64-byte aligned. Aborts when the address space is exhausted.
void* ThreadScratch();

}  // namespace xpud::drivers::cpu
