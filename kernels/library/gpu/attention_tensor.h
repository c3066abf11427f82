// Shared by the kernels that use tensor cores: parts of matrices of 16-bit elements in registers. Device code
// only.
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

// Of two lanes `apart`, the lower one exchanges its `high` for the other's `low`. REQUIRES: all lanes of a
// warp.
XPUD_DEVICE void Exchange(uint32_t& low, uint32_t& high, int apart) {
  const bool upper = (Lane() & apart) != 0;
  const uint32_t given = upper ? low : high;
  const auto got = static_cast<uint32_t>(__nvvm_shfl_sync_bfly_i32(-1, static_cast<int>(given), apart, 31));
  low = upper ? got : low;
  high = upper ? high : got;
}

// Before, lane i of four holds word i of each x[k]. Afterwards, lane k holds the four words of x[k].
XPUD_DEVICE void TransposeOfFour(uint32_t (&x)[4]) {
  Exchange(x[0], x[1], 1);
  Exchange(x[2], x[3], 1);
  Exchange(x[0], x[2], 2);
  Exchange(x[1], x[3], 2);
}

// Returns true if all rows of a tensor of 16-bit elements start at multiples of 16 bytes, so that a piece can
// be stored at once.
XPUD_DEVICE bool RowsAreWide(const void* data, const HeadStrides& strides) {
  return ((reinterpret_cast<int64_t>(data) | (strides.batch | strides.head | strides.row) * 2) & 15) == 0;
}

// Stores the first `depth` elements of a row (0: none), of which four lanes have pairs, pair(block), of
// blocks of 8 columns. `wide` as RowsAreWide. Stores pieces of 16 bytes, because a group that ends soon waits
// for its stores. REQUIRES: all lanes of a warp.
template <int kBlocks, typename T, typename PairOf>
XPUD_DEVICE void StoreRow(T* to, int depth, bool wide, PairOf pair) {
  static_assert(kBlocks % 4 == 0);
  const int lane = Lane() % 4;
  if (!wide) {
#pragma unroll
    for (int n = 0; n < kBlocks; ++n)
      if (n * 8 < depth) *reinterpret_cast<uint32_t*>(to + n * 8 + lane * 2) = pair(n);
    return;
  }
#pragma unroll
  for (int n = 0; n < kBlocks; n += 4) {
    uint32_t x[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) x[i] = pair(n + i);
    TransposeOfFour(x);
    if ((n + lane) * 8 < depth)
      asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(to + (n + lane) * 8), "r"(x[0]),
                   "r"(x[1]), "r"(x[2]), "r"(x[3])
                   : "memory");
  }
}

// Turns a row's scores of a tile into weights. Four lanes have the scores in pairs, score(block, 0 or 1), of
// blocks of 8 keys, and each has a part of the row's sum. Returns the factor of what was summed before.
// `unit` converts scores to units of log 2. REQUIRES: all lanes of a warp.
template <int kBlocks, typename Score>
XPUD_DEVICE float WeighRow(Softmax& row, float unit, Score score) {
  float most = score(0, 0);
#pragma unroll
  for (int n = 0; n < kBlocks; ++n) most = Max(most, Max(score(n, 0), score(n, 1)));
  most = Max(most, Across(most, 1));
  most = Max(most, Across(most, 2));
  const auto [base, shrink] = row.Raise(Max(row.top, most * unit));
  float part = 0;
#pragma unroll
  for (int n = 0; n < kBlocks; ++n)
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      float& s = score(n, e);
      s = Exp2(__builtin_fmaf(s, unit, -base));
      part += s;
    }
  row.sum = row.sum * shrink + part;
  return shrink;
}

// Ends a row. Four lanes have parts of its sum, and its sums of values in pairs, element(block, 0 or 1), of
// blocks of 8 columns. REQUIRES: all lanes of a warp call it together, also without a valid row. With a
// branch here that could diverge, ptxas would treat no address of the whole kernel as uniform (8% at a depth
// of 64).
template <typename T, int kBlocks, bool kCut, typename Element>
XPUD_DEVICE void EndRow(const AttentionArguments& p, int64_t b, int64_t h, int64_t row, float top, float sum,
                        Element element) {
  float total = sum + Across(sum, 1);
  total += Across(total, 2);
  const float inverse = InverseOf(total);
  const bool there = row < p.queries;
  const int lane = Lane() % 4, depth = there ? static_cast<int>(p.value_depth) : 0;
  const Result<T> to = ResultOf<T, kCut>(p, b, h, row);
  if (there && lane == 0) StoreLogsumexp(to, top, total);
  if (kCut && p.parts != nullptr) {
#pragma unroll
    for (int n = 0; n < kBlocks; ++n)
      if (n * 8 < depth)
        asm volatile("st.global.v2.f32 [%0], {%1, %2};" ::"l"(to.part + n * 8 + lane * 2),
                     "f"(element(n, 0) * inverse), "f"(element(n, 1) * inverse)
                     : "memory");
    return;
  }
  StoreRow<kBlocks>(to.out, depth, RowsAreWide(p.out, p.out_strides),
                    [&](int n) __attribute__((always_inline)) {
                      return Pair<T>(element(n, 0) * inverse, element(n, 1) * inverse);
                    });
}

}  // namespace xpud::gpu
