// Attention of 16-bit types on tensor cores, without storing scores: FlashAttention-2's scheme (Dao, 2023)
// with mma.m16n8k16. Compiled to PTX once for each XPUD_ELEMENT and XPUD_DEPTH, without masks and
// (XPUD_MASKED) with them; with dropout (XPUD_DROPOUT) in both forms.
#include "kernels/library/gpu/attention_mma.h"

#include "kernels/library/gpu/attention_dropout.h"
#include "kernels/library/gpu/attention_mma_dropout.h"

namespace xpud::gpu {

constexpr int kKeys = kDepth > 64 ? 32 : 64;  // of a tile
constexpr int kTileElements = kKeys * kDepth;
// After the first tiles a maximum seldom grows. If out is large, testing for that pays.
constexpr bool kAsks = kDepth > 64;

// The mask's addends for the scores of a warp's 16 rows, in units of log 2. All are read at once, before they
// are needed.
struct Mask {
  float x[kKeys / 8][2][2];  // [of 8 keys][row: this one, or 8 below][key]
};

template <bool kBool>
XPUD_DEVICE void Read(Mask& mask, const AttentionArguments& p, int64_t head, int row, int key, int keys) {
  const int last_row = static_cast<int>(p.queries) - 1;
#pragma unroll
  for (int n = 0; n < kKeys / 8; ++n)
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        float& x = mask.x[n][half][e];
        x = mask.x[n][0][e];
        if (half != 0 && p.mask_strides.row == 0) continue;
        const int64_t place = head + Least(row + half * 8, last_row) * p.mask_strides.row +
                              Least(key + n * 8 + e, keys - 1) * p.mask_strides.column;
        if constexpr (kBool)
          x = static_cast<const uint8_t*>(p.mask)[place] != 0 ? 0.0f : -__builtin_inff();
        else
          x = MaskUnits(Load(static_cast<const T*>(p.mask)[place]));
      }
}

// Each warp takes kBlocks blocks of 16 queries. Without a mask, `scale` is positive.
template <int kBlocks, bool kMasked, bool kCut, bool kDrops = false>
XPUD_DEVICE void Attend(const AttentionArguments& p) {
  constexpr int kRows = kWarps * kBlocks * 16;
  constexpr int kElements = kRows * kDepth > 4 * kTileElements ? kRows * kDepth : 4 * kTileElements;
  XPUD_SHARED T memory[kElements] __attribute__((aligned(128)));  // q; afterwards k and v of two tiles
  const int lane = Lane() % 32, warp = Lane() / 32;
  const int64_t groups = (p.queries + kRows - 1) / kRows;
  const auto [group, h, b] = PositionOf(GroupX(), groups, p.heads);
  const int64_t first = (p.causal ? groups - 1 - group : group) * kRows;
  const int64_t kh = Quotient(h, p.heads_per_key_head);
  const T* const q = static_cast<const T*>(p.q) + b * p.q_strides.batch + h * p.q_strides.head;
  const T* const k = static_cast<const T*>(p.k) + b * p.k_strides.batch + kh * p.k_strides.head;
  const T* const v = static_cast<const T*>(p.v) + b * p.v_strides.batch + kh * p.v_strides.head;
  const int depth = static_cast<int>(p.depth), value_depth = static_cast<int>(p.value_depth);

  BeginTile<kRows>(memory, q, p.q_strides.row, first, p.queries, depth);
  CommitCopies();
  WaitForCopies<0>();
  Synchronize();
  Fragment query[kBlocks][kDepth / 16];
#pragma unroll
  for (int m = 0; m < kBlocks; ++m)
#pragma unroll
    for (int d = 0; d < kDepth / 16; ++d) query[m][d] = LoadLeft(memory, (warp * kBlocks + m) * 16, d);
  Synchronize();

  float out[kBlocks][kDepth / 8][4] = {};
  float top[kBlocks][2], sum[kBlocks][2] = {};
#pragma unroll
  for (int m = 0; m < kBlocks; ++m) top[m][0] = top[m][1] = -__builtin_inff();
  const float factor = static_cast<float>(p.scale) * kLog2E;
  const KeyRange range = RangeOf<kCut>(p, first + kRows);
  const int keys = range.end;
  const int row0 =
      static_cast<int>(first) + warp * kBlocks * 16 + lane / 4;  // of this lane; its other rows are 8 apart

  const bool barring = p.mask_kind == MaskKind::kBool;
  if (keys > range.begin) {
    BeginTile<kKeys>(memory, k, p.k_strides.row, range.begin, keys, depth);
    BeginTile<kKeys>(memory + kTileElements, v, p.v_strides.row, range.begin, keys, value_depth);
  }
  int side = 0;
  for (int at = range.begin; at < keys; at += kKeys, side ^= 1) {
    CommitCopies();
    WaitForCopies<0>();
    Synchronize();
    T* const k_tile = memory + side * 2 * kTileElements;
    T* const v_tile = k_tile + kTileElements;
    if (at + kKeys < keys) {
      T* const next = memory + (side ^ 1) * 2 * kTileElements;
      BeginTile<kKeys>(next, k, p.k_strides.row, at + kKeys, keys, depth);
      BeginTile<kKeys>(next + kTileElements, v, p.v_strides.row, at + kKeys, keys, value_depth);
    }

    Mask mask;
    if constexpr (kMasked) {
      static_assert(kBlocks == 1);
      const int64_t head = b * p.mask_strides.batch + h * p.mask_strides.head;
      if (barring)
        Read<true>(mask, p, head, row0, at + lane % 4 * 2, keys);
      else
        Read<false>(mask, p, head, row0, at + lane % 4 * 2, keys);
    }

    float score[kBlocks][kKeys / 8][4] = {};
#pragma unroll
    for (int d = 0; d < kDepth / 16; ++d)
#pragma unroll
      for (int n = 0; n < kKeys / 16; ++n) {
        const Fragment f = LoadRight(k_tile, n * 16, d);
#pragma unroll
        for (int m = 0; m < kBlocks; ++m) {
          MultiplyAdd(score[m][2 * n], query[m][d], f.x[0], f.x[1]);
          MultiplyAdd(score[m][2 * n + 1], query[m][d], f.x[2], f.x[3]);
        }
      }

    // Converts to units of log 2, here or in the exponential.
    const float unit = kMasked ? 1.0f : factor;
    if constexpr (kMasked) {
#pragma unroll
      for (int n = 0; n < kKeys / 8; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          float& s = score[0][n][i];
          const float added = mask.x[n][i / 2][i % 2];
          s = barring && added != 0 ? -__builtin_inff() : __builtin_fmaf(s, factor, added);
        }
    }
    if (at + kKeys > keys || (p.causal && at + kKeys - 1 > first)) {
#pragma unroll
      for (int m = 0; m < kBlocks; ++m)
#pragma unroll
        for (int n = 0; n < kKeys / 8; ++n)
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            const int key = at + n * 8 + lane % 4 * 2 + i % 2, row = row0 + m * 16 + i / 2 * 8;
            if (key >= keys || (p.causal && key > row)) score[m][n][i] = -__builtin_inff();
          }
    }

    float shrink[kBlocks][2];
    [[maybe_unused]] bool grown = false;
#pragma unroll
    for (int m = 0; m < kBlocks; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float most = score[m][0][half * 2];
#pragma unroll
        for (int n = 0; n < kKeys / 8; ++n)
          most = Max(most, Max(score[m][n][half * 2], score[m][n][half * 2 + 1]));
        most = Max(most, Across(most, 1));
        most = Max(most, Across(most, 2));
        most = Max(top[m][half], most * unit);
        const float base = most == -__builtin_inff() ? 0.0f : most;
        shrink[m][half] = Exp2(top[m][half] - base);
        grown = grown || shrink[m][half] != 1;
        top[m][half] = most;
        float part = 0;
#pragma unroll
        for (int n = 0; n < kKeys / 8; ++n)
#pragma unroll
          for (int e = 0; e < 2; ++e) {
            float& s = score[m][n][half * 2 + e];
            s = Exp2(__builtin_fmaf(s, unit, -base));
            part += s;
          }
        sum[m][half] = sum[m][half] * shrink[m][half] + part;
        if constexpr (!kAsks) {
#pragma unroll
          for (int d = 0; d < kDepth / 8; ++d) {
            out[m][d][half * 2] *= shrink[m][half];
            out[m][d][half * 2 + 1] *= shrink[m][half];
          }
        }
      }
    }
    if (kAsks && __nvvm_vote_any_sync(-1, grown)) {
#pragma unroll
      for (int m = 0; m < kBlocks; ++m)
#pragma unroll
        for (int d = 0; d < kDepth / 8; ++d)
#pragma unroll
          for (int i = 0; i < 4; ++i) out[m][d][i] *= shrink[m][i / 2];
    }

    if constexpr (kDrops) {
#pragma unroll
      for (int m = 0; m < kBlocks; ++m)
#pragma unroll
        for (int n = 0; n < kKeys / 8; ++n) {
          const Factors factors = FactorsOfQueries(p, b, h, row0 + m * 16, at + n * 8);
#pragma unroll
          for (int i = 0; i < 4; ++i) score[m][n][i] *= factors.x[i];
        }
    }

#pragma unroll
    for (int n = 0; n < kKeys / 16; ++n) {
      Fragment weight[kBlocks];
#pragma unroll
      for (int m = 0; m < kBlocks; ++m) weight[m] = LeftOf(score[m][2 * n], score[m][2 * n + 1]);
#pragma unroll
      for (int d = 0; d < kDepth / 16; ++d) {
        const Fragment f = LoadRightRows(v_tile, n * 16, d);
#pragma unroll
        for (int m = 0; m < kBlocks; ++m) {
          MultiplyAdd(out[m][2 * d], weight[m], f.x[0], f.x[1]);
          MultiplyAdd(out[m][2 * d + 1], weight[m], f.x[2], f.x[3]);
        }
      }
    }
  }

#pragma unroll
  for (int m = 0; m < kBlocks; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      EndRow<T, kDepth / 8, kCut>(p, b, h, row0 + m * 16 + half * 8, top[m][half], sum[m][half],
                                  [&](int d, int e) { return out[m][d][half * 2 + e]; });
    }
}

}  // namespace xpud::gpu

using namespace xpud::gpu;

// The second number is the minimum of groups for which a multiprocessor has room: it limits registers.
#if defined(XPUD_DROPOUT)
XPUD_KERNEL_OF(128, 2) attention_mma_dropout_64(const AttentionArguments p) {
  Attend<1, false, false, true>(p);
}
XPUD_KERNEL_OF(128, 2) attention_mma_masked_dropout_64(const AttentionArguments p) {
  Attend<1, true, false, true>(p);
}
#elif defined(XPUD_MASKED)
XPUD_KERNEL_OF(128, 2) attention_mma_masked_64(const AttentionArguments p) { Attend<1, true, false>(p); }
XPUD_KERNEL_OF(128, 2) attention_mma_masked_cut_64(const AttentionArguments p) { Attend<1, true, true>(p); }
#else
XPUD_KERNEL_OF(128, kDepth > 64 ? 2 : 3) attention_mma_64(const AttentionArguments p) {
  Attend<1, false, false>(p);
}
XPUD_KERNEL_OF(128, 2) attention_mma_128(const AttentionArguments p) { Attend<2, false, false>(p); }
XPUD_KERNEL_OF(128, 2) attention_mma_cut_64(const AttentionArguments p) { Attend<1, false, true>(p); }
#endif
