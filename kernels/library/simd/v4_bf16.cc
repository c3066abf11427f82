// Attention of bf16 for x86-64-v4 with AVX512-BF16. Must not include headers with inline functions: the
// linker could keep this file's copy of one for the whole program.
#define XPUD_SIMD_ISA v4_bf16
#include "kernels/library/simd/pair_functions.inc"
