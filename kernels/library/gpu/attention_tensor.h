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

// Of two lanes `apart`, the lower one gives its `high` for the other's `low`.
XPUD_DEVICE void Exchange(uint32_t& low, uint32_t& high, int apart) {
  const bool upper = (Lane() & apart) != 0;
  const unsigned four = 15u << (Lane() % 32 & ~3);
  const uint32_t given = upper ? low : high;
  const auto got = static_cast<uint32_t>(__nvvm_shfl_sync_bfly_i32(four, static_cast<int>(given), apart, 31));
  low = upper ? got : low;
  high = upper ? high : got;
}

// Four lanes have word i of each x[k], as lane i: afterwards lane k has the four words of x[k].
XPUD_DEVICE void TransposeOfFour(uint32_t (&x)[4]) {
  Exchange(x[0], x[1], 1);
  Exchange(x[2], x[3], 1);
  Exchange(x[0], x[2], 2);
  Exchange(x[1], x[3], 2);
}

// Stores a lane's pairs of a row, element(block, 0 or 1), of blocks of 8 columns of which `depth` columns are
// there.
template <int kBlocks, typename T, typename Element>
XPUD_DEVICE void StorePairs(const Result<T>& to, int depth, Element element) {
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

// The same in pieces of 16 bytes where there is room for them: a group that ends soon waits for its stores.
// Four lanes have a row, and come together.
template <int kBlocks, typename T, typename Element>
XPUD_DEVICE void StoreRow(const Result<T>& to, int depth, Element element) {
  static_assert(kBlocks % 4 == 0);
  if (to.part != nullptr || reinterpret_cast<uintptr_t>(to.out) % 16 != 0) {
    StorePairs<kBlocks>(to, depth, element);
    return;
  }
  const int lane = Lane() % 4;
#pragma unroll
  for (int n = 0; n < kBlocks; n += 4) {
    uint32_t x[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) x[i] = Pair<T>(element(n + i, 0), element(n + i, 1));
    TransposeOfFour(x);
    if ((n + lane) * 8 < depth)
      asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(to.out + (n + lane) * 8), "r"(x[0]),
                   "r"(x[1]), "r"(x[2]), "r"(x[3])
                   : "memory");
  }
}

}  // namespace xpud::gpu
