// The vector code for x86-64-v3. Must not include headers with inline functions: the linker could keep this
// file's copy of one for the whole program.
#define XPUD_SIMD_ISA v3
#include "kernels/library/simd/functions.inc"
