// The vector code for the x86-64 baseline. Must not include headers with inline functions: the linker could
// keep this file's copy of one for the whole program.
#define XPUD_SIMD_ISA baseline
#include "kernels/library/simd/functions.inc"
