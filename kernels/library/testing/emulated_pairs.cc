// Attention of bf16 in pairs without instructions for it, for tests on any machine. Must not include headers
// with inline functions, as the files of simd/.
#include "kernels/library/testing/emulated_pairs.h"

#define XPUD_SIMD_EMULATES_PAIRS
#define XPUD_SIMD_ISA emulated
#include "kernels/library/simd/pair_functions.inc"
