// The vector code for v3. Includes nothing that has inline functions of its own: the linker could keep this
// file's copy of one for the whole program.
#define XPUD_SIMD_ISA v3
#include "kernels/library/simd/functions.inc"
