// The vector code for x86-64-v4. Must not include headers with inline functions: the linker could keep this
// file's copy of one for the whole program.
#define XPUD_SIMD_ISA v4
#include "kernels/library/simd/functions.inc"
