// The vector code for the x86-64 baseline. Includes nothing that has inline functions of its own: the linker
// could keep this file's copy of one for the whole program.
#define XPUD_SIMD_ISA baseline
#include "kernels/library/simd/functions.inc"
