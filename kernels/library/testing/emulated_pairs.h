// What AMX and AVX512-BF16 compute, in plain code: the same program around other products.
#pragma once

#include "kernels/library/simd/simd.h"

namespace xpud::kernels::simd::emulated {

extern const AttentionFunctions kAttention;

}  // namespace xpud::kernels::simd::emulated
