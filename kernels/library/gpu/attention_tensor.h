// What the kernels that use tensor cores share: parts of matrices of 16-bit elements in registers. Device
// code only.
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

// Stores a lane's pairs of a row, element(block, 0 or 1), of blocks of 8 columns of which `depth` columns are
// there.
template <int kBlocks, typename T, typename Element>
XPUD_DEVICE void StoreRow(const Result<T>& to, int depth, Element element) {
  const int column = Lane() % 4 * 2;
  if (to.part != nullptr) {
#pragma unroll
    for (int n = 0; n < kBlocks; ++n)
      if (n * 8 < depth)
        asm volatile("st.global.v2.f32 [%0], {%1, %2};" ::"l"(to.part + n * 8 + column), "f"(element(n, 0)),
                     "f"(element(n, 1))
                     : "memory");
    return;
  }
#pragma unroll
  for (int n = 0; n < kBlocks; ++n)
    if (n * 8 < depth)
      *reinterpret_cast<uint32_t*>(to.out + n * 8 + column) = Pair<T>(element(n, 0), element(n, 1));
}

}  // namespace xpud::gpu
