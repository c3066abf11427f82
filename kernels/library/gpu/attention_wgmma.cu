// Attention of 16-bit types on Hopper's tensor cores, without storing scores. Four warps multiply with wgmma;
// the next product runs while the weights of the last one are computed (FlashAttention-3's overlap; Shah et
// al., 2024). Compiled to PTX once for each XPUD_ELEMENT and XPUD_DEPTH; no masks.
#include "kernels/library/gpu/attention_arguments.h"
#include "kernels/library/gpu/attention_device.h"
#include "kernels/library/gpu/attention_wgmma.h"
#include "kernels/library/gpu/device.h"

namespace xpud::gpu {

using T = XPUD_ELEMENT;
constexpr int kDepth = XPUD_DEPTH;
constexpr int kLanes = AttentionArguments::kMmaLanes;
constexpr int kRows = 64;
constexpr int kKeys = 64;  // of a tile
constexpr int kSpan = 64;  // columns of a slab: 128 bytes, the width of the swizzle
constexpr int kSlabs = kDepth / kSpan;
constexpr int kSlabBytes = kKeys * 128;
constexpr int kTileBytes = kSlabs * kSlabBytes;
constexpr int kTiles = kDepth == 64 ? 4 : 3;  // tiles in shared memory

// Begins to copy kCount rows, from row `first` on, as slabs of 64 columns. Rows from `size` on become 0.
template <int kCount>
XPUD_DEVICE void BeginTile(uint32_t tile, const T* from, int64_t stride, int first, int size, int depth) {
  constexpr int kChunks = kDepth / 8, kStep = kLanes / kChunks;
  static_assert(kCount % 8 == 0 && kStep % 8 == 0);
  const int chunk = Lane() % kChunks, lane_row = Lane() / kChunks;
  const uint32_t to = tile + chunk / 8 * kCount * 128 + (chunk % 8 ^ lane_row % 8) * 16;
  const T* at = from + (first + lane_row) * stride + chunk * 8;
#pragma unroll
  for (int row = lane_row; row < (kCount + kStep - 1) / kStep * kStep + lane_row; row += kStep) {
    if (kCount % kStep == 0 || row < kCount)
      CopyChunk(to + row * 128, at, first + row < size && chunk * 8 < depth);
    at += kStep * stride;
  }
}

// Makes copies of all lanes visible to wgmma, except for the kLeft groups committed last.
template <int kLeft = 0>
XPUD_DEVICE void Publish() {
  WaitForCopies<kLeft>();
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  Synchronize();
}

XPUD_DEVICE void Attend(const AttentionArguments& p) {
  constexpr int kMemory = kTiles * kTileBytes > kRows * kDepth * 2 ? kTiles * kTileBytes : kRows * kDepth * 2;
  XPUD_SHARED char memory[kMemory] __attribute__((aligned(1024)));
  const uint32_t base_at = SharedAddress(memory);
  const int lane = Lane() % 32, warp = Lane() / 32;
  const int64_t groups = (p.queries + kRows - 1) / kRows;
  const auto [group, h, b] = PositionOf(GroupX(), groups, p.heads);
  const int first = static_cast<int>((p.causal ? groups - 1 - group : group) * kRows);
  const int64_t kh = Quotient(h, p.heads_per_key_head);
  const T* const q = static_cast<const T*>(p.q) + b * p.q_strides.batch + h * p.q_strides.head;
  const T* const k = static_cast<const T*>(p.k) + b * p.k_strides.batch + kh * p.k_strides.head;
  const T* const v = static_cast<const T*>(p.v) + b * p.v_strides.batch + kh * p.v_strides.head;
  const int depth = static_cast<int>(p.depth), value_depth = static_cast<int>(p.value_depth);
  const KeyRange range = RangeOf(p, first + kRows);
  const int keys = range.end;
  const int row0 = first + warp * 16 + lane / 4;  // of this lane; its other row is 8 below
  const float factor = static_cast<float>(p.scale) * kLog2E;

  // Keys have one tile, which is free once their scores are computed, or two in turn. Values have two.
  constexpr int kKeyTiles = kTiles - 2;
  const auto k_tile = [&](int tile) { return base_at + tile % kKeyTiles * kTileBytes; };
  const auto v_tile = [&](int tile) { return base_at + (kKeyTiles + tile % 2) * kTileBytes; };
  const int tiles = keys > range.begin ? (keys - range.begin + kKeys - 1) / kKeys : 0;
  const auto begin_k = [&](int tile) {
    if (tile < tiles)
      BeginTile<kKeys>(k_tile(tile), k, p.k_strides.row, range.begin + tile * kKeys, keys, depth);
    CommitCopies();
  };
  const auto begin_v = [&](int tile) {
    if (tile < tiles)
      BeginTile<kKeys>(v_tile(tile), v, p.v_strides.row, range.begin + tile * kKeys, keys, value_depth);
    CommitCopies();
  };
  // Queries are first in the tile that later becomes the second tile of values.
  const uint32_t q_tile = v_tile(1);
  BeginTile<kRows>(q_tile, q, p.q_strides.row, first, static_cast<int>(p.queries), depth);
  CommitCopies();
  begin_k(0);
  begin_v(0);
  WaitForCopies<2>();
  Synchronize();
  Fragment query[kDepth / 16];
#pragma unroll
  for (int d = 0; d < kDepth / 16; ++d) {
    const int row = warp * 16 + lane % 16, chunk = d * 2 + lane / 16;
    query[d] = LoadMatrices(q_tile + chunk / 8 * kRows * 128 + row * 128 + (chunk % 8 ^ row % 8) * 16);
  }

  float score[32], out[kDepth / 2] = {}, top[2], sum[2] = {};
  top[0] = top[1] = -__builtin_inff();
  if (tiles > 0) {
    Publish<1>();
    BeginScores<T, kSlabBytes>(score, query, k_tile(0));
    if constexpr (kKeyTiles > 1) begin_k(1);
    WaitFor<0>(score);
    if constexpr (kKeyTiles == 1) {
      Synchronize();
      begin_k(1);
    }
    Publish();
  }

  // Attends to a tile whose scores are known. Begins the next tile unless this is the last.
  const auto attend = [&]<bool kLast>(int tile) __attribute__((always_inline)) {
    float next[32];
    if constexpr (!kLast) {
      BeginScores<T, kSlabBytes>(next, query, k_tile(tile + 1));
      begin_v(tile + 1);
      if constexpr (kKeyTiles > 1) begin_k(tile + 2);
    }

    const int at = range.begin + tile * kKeys;
    if (at + kKeys > keys || (p.causal && at + kKeys - 1 > first)) {
#pragma unroll
      for (int i = 0; i < 32; ++i) {
        const int key = at + i / 4 * 8 + lane % 4 * 2 + i % 2, row = row0 + i / 2 % 2 * 8;
        if (key >= keys || (p.causal && key > row)) score[i] = -__builtin_inff();
      }
    }
    float shrink[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float most = score[half * 2];
#pragma unroll
      for (int n = 0; n < 8; ++n) most = Max(most, Max(score[n * 4 + half * 2], score[n * 4 + half * 2 + 1]));
      most = Max(most, Across(most, 1));
      most = Max(most, Across(most, 2));
      most = Max(top[half], most * factor);
      const float base = most == -__builtin_inff() ? 0.0f : most;
      shrink[half] = Exp2(top[half] - base);
      top[half] = most;
      float part = 0;
#pragma unroll
      for (int n = 0; n < 8; ++n)
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          float& s = score[n * 4 + half * 2 + e];
          s = Exp2(__builtin_fmaf(s, factor, -base));
          part += s;
        }
      sum[half] = sum[half] * shrink[half] + part;
    }
    Fragment weight[kKeys / 16];
#pragma unroll
    for (int n = 0; n < kKeys / 16; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) weight[n].x[i] = Pair<T>(score[n * 8 + i * 2], score[n * 8 + i * 2 + 1]);
#pragma unroll
    for (int i = 0; i < kDepth / 2; ++i) out[i] *= shrink[i / 2 % 2];

    BeginOut<T, kSlabBytes>(out, weight, v_tile(tile));
    if constexpr (!kLast) {
      WaitFor<1>(next);
      if constexpr (kKeyTiles == 1) {
        Synchronize();
        begin_k(tile + 2);
      }
    }
    WaitFor<0>(out);
    if constexpr (!kLast) {
      Publish();
#pragma unroll
      for (int i = 0; i < 32; ++i) score[i] = next[i];
    }
  };
#pragma unroll 1
  for (int tile = 0; tile + 1 < tiles; ++tile) attend.template operator()<false>(tile);
  if (tiles > 0) attend.template operator()<true>(tiles - 1);

#pragma unroll
  for (int half = 0; half < 2; ++half) {
    EndRow<T, kDepth / 8, true>(p, b, h, row0 + half * 8, top[half], sum[half],
                                [&](int n, int e) { return out[n * 4 + half * 2 + e]; });
  }
}

}  // namespace xpud::gpu

using namespace xpud::gpu;

// The second number is the minimum of groups for which a multiprocessor has room: they hide each other's
// waiting.
XPUD_KERNEL_OF(128, kDepth == 64 ? 3 : 2) attention_wgmma(const AttentionArguments p) { Attend(p); }
