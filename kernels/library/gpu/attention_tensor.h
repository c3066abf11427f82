// What the kernels that use tensor cores share: parts of matrices of 16-bit elements in registers. Device code only.
#pragma once

#include "kernels/library/gpu/attention_device.h"

namespace xpud::gpu {

// A warp's 16 rows and 16 columns, or two blocks of 8 columns.
struct Fragment {
  uint32_t x[4];
};

XPUD_DEVICE Fragment LoadMatrices(uint32_t at) {
  Fragment f;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(f.x[0]), "=r"(f.x[1]), "=r"(f.x[2]), "=r"(f.x[3])
               : "r"(at)
               : "memory");
  return f;
}

template <typename T>
XPUD_DEVICE uint32_t Pair(float low, float high) {
  uint32_t pair;
  if constexpr (__is_same(T, BFloat16))
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  else
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}

template <typename T>
XPUD_DEVICE void StorePair(const Result<T>& to, int column, float low, float high) {
  if (to.part != nullptr)
    asm volatile("st.global.v2.f32 [%0], {%1, %2};" ::"l"(to.part + column), "f"(low), "f"(high) : "memory");
  else
    *reinterpret_cast<uint32_t*>(to.out + column) = Pair<T>(low, high);
}

}  // namespace xpud::gpu
