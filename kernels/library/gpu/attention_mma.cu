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

// The call's mask for the scores of a warp's 16 rows: addends in units of log 2. All are read at once, before
// they are needed.
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

// A lane's part of the queries of its warp, which takes kBlocks blocks of 16: rows `row` and 8 below of each.
template <int kBlocks>
struct Rows {
  int row;
  Fragment query[kBlocks][kDepth / 16];
  float score[kBlocks][kKeys / 8][4];  // later weights
  float out[kBlocks][kDepth / 8][4] = {};
  Softmax softmax[kBlocks][2];

  // Reads the queries from a tile.
  XPUD_DEVICE_MEMBER void ReadQueries(const T* tile, int warp) {
#pragma unroll
    for (int m = 0; m < kBlocks; ++m)
#pragma unroll
      for (int d = 0; d < kDepth / 16; ++d) query[m][d] = LoadLeft(tile, (warp * kBlocks + m) * 16, d);
  }

  // Computes the scores of a tile of keys.
  XPUD_DEVICE_MEMBER void AddScores(const T* k_tile) {
#pragma unroll
    for (int m = 0; m < kBlocks; ++m)
#pragma unroll
      for (int n = 0; n < kKeys / 8; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) score[m][n][i] = 0;
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
  }

  // Converts scores to units of log 2, with the call's mask.
  XPUD_DEVICE_MEMBER void AddMask(const Mask& mask, bool barring, float factor) {
    static_assert(kBlocks == 1);
#pragma unroll
    for (int n = 0; n < kKeys / 8; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float& s = score[0][n][i];
        const float added = mask.x[n][i / 2][i % 2];
        s = barring && added != 0 ? -__builtin_inff() : __builtin_fmaf(s, factor, added);
      }
  }

  // Removes the scores of keys, of a tile from `at` on, to which queries do not attend. `first` is the
  // group's first query.
  XPUD_DEVICE_MEMBER void Hide(const AttentionArguments& p, int64_t first, int at, int keys, int lane) {
    if (at + kKeys <= keys && !(p.causal && at + kKeys - 1 > first)) return;
#pragma unroll
    for (int m = 0; m < kBlocks; ++m)
#pragma unroll
      for (int n = 0; n < kKeys / 8; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          // IsHidden would select, which takes more registers than to branch.
          const int key = at + n * 8 + lane % 4 * 2 + i % 2, own = row + m * 16 + i / 2 * 8;
          if (key >= keys || (p.causal && key > own)) score[m][n][i] = -__builtin_inff();
        }
  }

  // Turns scores into weights. `unit` converts scores to units of log 2. Out shrinks.
  XPUD_DEVICE_MEMBER void Weigh(float unit) {
    float shrink[kBlocks][2];
    [[maybe_unused]] bool grown = false;
#pragma unroll
    for (int m = 0; m < kBlocks; ++m)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        shrink[m][half] = WeighRow<kKeys / 8>(
            softmax[m][half], unit, [&](int n, int e) -> float& { return score[m][n][half * 2 + e]; });
        grown = grown || shrink[m][half] != 1;
        if constexpr (!kAsks) {
#pragma unroll
          for (int d = 0; d < kDepth / 8; ++d) {
            out[m][d][half * 2] *= shrink[m][half];
            out[m][d][half * 2 + 1] *= shrink[m][half];
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
  }

  // Applies dropout to the weights of a tile of keys from `at` on.
  XPUD_DEVICE_MEMBER void Drop(const AttentionArguments& p, const Block& block, int at) {
#pragma unroll
    for (int m = 0; m < kBlocks; ++m)
#pragma unroll
      for (int n = 0; n < kKeys / 8; ++n) {
        const Factors factors = FactorsOfQueries(p, block.b, block.h, row + m * 16, at + n * 8);
#pragma unroll
        for (int i = 0; i < 4; ++i) score[m][n][i] *= factors.x[i];
      }
  }

  // Adds weighted values of a tile.
  XPUD_DEVICE_MEMBER void AddValues(const T* v_tile) {
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

  template <bool kCut>
  XPUD_DEVICE_MEMBER void End(const AttentionArguments& p, const Block& block) const {
#pragma unroll
    for (int m = 0; m < kBlocks; ++m)
#pragma unroll
      for (int half = 0; half < 2; ++half)
        EndRow<T, kDepth / 8, kCut>(p, block.b, block.h, row + m * 16 + half * 8, softmax[m][half].top,
                                    softmax[m][half].sum,
                                    [&](int d, int e) { return out[m][d][half * 2 + e]; });
  }
};

// Begins to copy the keys and values from `at` on to a pair of tiles.
XPUD_DEVICE void BeginTiles(const AttentionArguments& p, const Heads<T>& heads, T* tiles, int at, int keys) {
  BeginTile<kKeys>(tiles, heads.k, p.k_strides.row, at, keys, heads.depth);
  BeginTile<kKeys>(tiles + kTileElements, heads.v, p.v_strides.row, at, keys, heads.value_depth);
}

// Without a mask, `scale` is positive.
template <int kBlocks, bool kMasked, bool kCut, bool kDrops = false>
XPUD_DEVICE void Attend(const AttentionArguments& p) {
  constexpr int kRows = kWarps * kBlocks * 16;
  constexpr int kElements = kRows * kDepth > 4 * kTileElements ? kRows * kDepth : 4 * kTileElements;
  XPUD_SHARED T memory[kElements] __attribute__((aligned(128)));  // q; afterwards k and v of two tiles
  const int lane = Lane() % 32, warp = Lane() / 32;
  const Block block = BlockOf(p, kRows);
  const Heads<T> heads = HeadsOf<T>(p, block);

  BeginTile<kRows>(memory, heads.q, p.q_strides.row, block.first, p.queries, heads.depth);
  CommitCopies();
  WaitForCopies<0>();
  Synchronize();
  Rows<kBlocks> rows;
  rows.ReadQueries(memory, warp);
  Synchronize();

  const float factor = static_cast<float>(p.scale) * kLog2E;
  const KeyRange range = RangeOf<kCut>(p, block.first + kRows);
  const int keys = range.end;
  rows.row = static_cast<int>(block.first) + warp * kBlocks * 16 + lane / 4;
  const bool barring = p.mask_kind == MaskKind::kBool;
  if (keys > range.begin) BeginTiles(p, heads, memory, range.begin, keys);
  int side = 0;
  for (int at = range.begin; at < keys; at += kKeys, side ^= 1) {
    CommitCopies();
    WaitForCopies<0>();
    Synchronize();
    T* const tiles = memory + side * 2 * kTileElements;
    if (at + kKeys < keys) BeginTiles(p, heads, memory + (side ^ 1) * 2 * kTileElements, at + kKeys, keys);
    Mask mask;
    if constexpr (kMasked) {
      const int64_t head = block.b * p.mask_strides.batch + block.h * p.mask_strides.head;
      if (barring)
        Read<true>(mask, p, head, rows.row, at + lane % 4 * 2, keys);
      else
        Read<false>(mask, p, head, rows.row, at + lane % 4 * 2, keys);
    }
    rows.AddScores(tiles);
    if constexpr (kMasked) rows.AddMask(mask, barring, factor);
    rows.Hide(p, block.first, at, keys, lane);
    rows.Weigh(kMasked ? 1.0f : factor);
    if constexpr (kDrops) rows.Drop(p, block, at);
    rows.AddValues(tiles + kTileElements);
  }
  rows.template End<kCut>(p, block);
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
