// Scratch memory for kernel invocations: XPUD_HOST_SCRATCH_BYTES for each thread that runs kernels, populated
// when touched and freed when the thread ends.
#pragma once

namespace xpud::drivers::cpu {

// Returns this thread's scratch, 64-byte aligned. Aborts if the address space is exhausted.
void* ThreadScratch();

}  // namespace xpud::drivers::cpu
