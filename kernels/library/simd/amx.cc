// Attention of bf16 for x86-64-v4 with AVX512-BF16 and AMX. Must not include headers with inline functions:
// the linker could keep this file's copy of one for the whole program.
#define XPUD_SIMD_ISA amx
#include "kernels/library/simd/pair_functions.inc"
