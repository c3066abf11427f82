// Attention in f32 by multiply-add, without storing scores. A lane holds a block of scores and then a block
// of out, as in matrix products. Compiled to PTX once for each XPUD_DEPTH.
#include "kernels/library/gpu/attention_arguments.h"
#include "kernels/library/gpu/attention_device.h"
#include "kernels/library/gpu/device.h"

namespace xpud::gpu {

constexpr int kDepth = XPUD_DEPTH;
constexpr int kChunks = kDepth / 4;  // of 16 bytes in a row
constexpr int kRowBytes = kDepth * 4;

struct Four {
  float x[4];
};
XPUD_DEVICE Four LoadFour(uint32_t from) {
  Four f;
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(f.x[0]), "=f"(f.x[1]), "=f"(f.x[2]), "=f"(f.x[3])
               : "r"(from)
               : "memory");
  return f;
}
XPUD_DEVICE void StoreFour(uint32_t to, const Four& f) {
  asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(to), "f"(f.x[0]), "f"(f.x[1]), "f"(f.x[2]),
               "f"(f.x[3])
               : "memory");
}

// Rows of a tensor that are copied to a tile in shared memory, kCount at a time. If kTurned, the same chunk
// of 8 adjacent rows is in different banks.
template <int kCount, int kLanes, bool kTurned>
struct TileRows {
  static constexpr int kStep = kLanes / kChunks;  // rows that the lanes copy at once
  static_assert(kCount % kStep == 0);

  const char* from;  // start of this lane's next row
  int64_t stride;    // in bytes
  uint32_t to;
  int row;  // number of this lane's next row
  bool inside;

  XPUD_DEVICE TileRows Of(float* tile, const float* rows, int64_t stride, int64_t first, int depth) {
    const int row = Lane() / kChunks, chunk = Lane() % kChunks;
    return {reinterpret_cast<const char*>(rows + (first + row) * stride + chunk * 4), stride * 4,
            SharedAddress(tile) + row * kRowBytes, static_cast<int>(first) + row, chunk * 4 < depth};
  }
};

// Begins to copy the next rows. Rows from `size` on become 0.
template <int kCount, int kLanes, bool kTurned>
XPUD_DEVICE void Begin(TileRows<kCount, kLanes, kTurned>& rows, int size) {
  constexpr int kStep = TileRows<kCount, kLanes, kTurned>::kStep;
  const uint32_t chunk = Lane() % kChunks;
#pragma unroll
  for (int step = 0; step < kCount / kStep; ++step) {
    const uint32_t turned = kTurned ? chunk ^ ((step * kStep + Lane() / kChunks) & 7) : chunk;
    const bool valid = rows.inside && rows.row < size;
    CopyChunk(rows.to + step * kStep * kRowBytes + turned * 16, rows.from, valid);
    rows.from += rows.stride * kStep;
    rows.row += kStep;
  }
}

// A lane's part of a group's scores and out. A warp has 4 kR queries and 8 kC keys. A lane has queries r + 4
// i, keys c + 8 j, and chunks c + 8 m of out for its queries. kWarpsQ warps have different queries, kWarpsK
// warps different keys.
template <int kR, int kC, int kWarpsQ, int kWarpsK>
struct Rows {
  static constexpr int kLanes = 32 * kWarpsQ * kWarpsK;
  static constexpr int kWarpRows = 4 * kR, kRows = kWarpsQ * kWarpRows;
  static constexpr int kWarpKeys = 8 * kC, kKeys = kWarpsK * kWarpKeys;
  static constexpr int kOwn = kDepth / 32;
  // Weights of a warp: transposed, so that a lane's queries are adjacent.
  static constexpr int kWeights = kWarpKeys * kWarpRows;

  const int r, c, warp_q, warp_k;
  int row;              // the lane's first query
  float score[kR][kC];  // later weights
  float out[kR][kOwn][4] = {};
  Softmax softmax[kR];

  XPUD_DEVICE_MEMBER Rows(int lane, int warp)
      : r(lane % 4), c(lane / 4), warp_q(warp % kWarpsQ), warp_k(warp / kWarpsQ) {}

  // Computes the scores of a tile. The lane's first query and key are at `q_at` and `k_at`.
  XPUD_DEVICE_MEMBER void AddScores(uint32_t q_at, uint32_t k_at) {
#pragma unroll
    for (int i = 0; i < kR; ++i)
#pragma unroll
      for (int j = 0; j < kC; ++j) score[i][j] = 0;
#pragma unroll 4
    for (int d = 0; d < kChunks; ++d) {
      Four keys[kC], queries[kR];
#pragma unroll
      for (int j = 0; j < kC; ++j) keys[j] = LoadFour(k_at + j * 8 * kRowBytes + (d ^ c) * 16);
#pragma unroll
      for (int i = 0; i < kR; ++i)
        queries[i] = LoadFour(q_at + i * 4 * kRowBytes + (d ^ (i % 2 * 4 + r)) * 16);
#pragma unroll
      for (int e = 0; e < 4; ++e)
#pragma unroll
        for (int i = 0; i < kR; ++i)
#pragma unroll
          for (int j = 0; j < kC; ++j)
            score[i][j] = __builtin_fmaf(queries[i].x[e], keys[j].x[e], score[i][j]);
    }
  }

  // Converts scores to units of log 2, with the call's mask. `key` is the lane's first.
  XPUD_DEVICE_MEMBER void AddMask(const AttentionArguments& p, const Block& block, int key, float factor) {
#pragma unroll
    for (int i = 0; i < kR; ++i)
#pragma unroll
      for (int j = 0; j < kC; ++j) score[i][j] *= factor;
    if (p.mask_kind == MaskKind::kNone) return;
    const int64_t head = block.b * p.mask_strides.batch + block.h * p.mask_strides.head;
    const int last_row = static_cast<int>(p.queries) - 1, last_key = static_cast<int>(p.keys) - 1;
#pragma unroll
    for (int i = 0; i < kR; ++i)
#pragma unroll
      for (int j = 0; j < kC; ++j) {
        const int64_t place = head + Least(row + i * 4, last_row) * p.mask_strides.row +
                              Least(key + j * 8, last_key) * p.mask_strides.column;
        if (p.mask_kind == MaskKind::kAdded)
          score[i][j] += MaskUnits(static_cast<const float*>(p.mask)[place]);
        else if (static_cast<const uint8_t*>(p.mask)[place] == 0)
          score[i][j] = -__builtin_inff();
      }
  }

  // Removes the scores of keys, of a tile from `at` on, to which queries do not attend. `first` is the
  // group's first query, `key` the lane's first key.
  XPUD_DEVICE_MEMBER void Hide(const AttentionArguments& p, int64_t first, int at, int key, int end) {
    if (at + kKeys <= end && !(p.causal && at + kKeys - 1 > first)) return;
#pragma unroll
    for (int i = 0; i < kR; ++i)
#pragma unroll
      for (int j = 0; j < kC; ++j)
        if (IsHidden(p, row + i * 4, key + j * 8, end)) score[i][j] = -__builtin_inff();
  }

  // Turns scores into weights. Out shrinks.
  XPUD_DEVICE_MEMBER void Weigh() {
#pragma unroll
    for (int i = 0; i < kR; ++i) {
      float most = score[i][0];
#pragma unroll
      for (int j = 1; j < kC; ++j) most = Max(most, score[i][j]);
#pragma unroll
      for (int lanes = 4; lanes < 32; lanes *= 2) most = Max(most, Across(most, lanes));
      const auto [base, shrink] = softmax[i].Raise(Max(softmax[i].top, most));
      softmax[i].sum *= shrink;
#pragma unroll
      for (int j = 0; j < kC; ++j) softmax[i].sum += score[i][j] = Exp2(score[i][j] - base);
      Shrink(i, shrink);
    }
  }
  XPUD_DEVICE_MEMBER void Shrink(int i, float shrink) {
#pragma unroll
    for (int m = 0; m < kOwn; ++m)
#pragma unroll
      for (int e = 0; e < 4; ++e) out[i][m][e] *= shrink;
  }

  // Stores weights for the other lanes of the warp. For odd keys, the halves of 8 queries are exchanged, so
  // that two keys use all banks.
  XPUD_DEVICE_MEMBER void StoreWeights(uint32_t weights) const {
#pragma unroll
    for (int j = 0; j < kC; ++j)
#pragma unroll
      for (int half = 0; half < kR / 4; ++half) {
        Four f;
#pragma unroll
        for (int e = 0; e < 4; ++e) f.x[e] = score[half * 4 + e][j];
        const int turned = kR == 8 ? half ^ (c & 1) : half;
        StoreFour(weights + (j * 8 + c) * kWarpRows * 4 + r * kR * 4 + turned * 16, f);
      }
    __nvvm_bar_warp_sync(-1);
  }

  // Adds weighted values of a tile. The lane's first chunk is at `v_at`.
  XPUD_DEVICE_MEMBER void AddValues(uint32_t weights, uint32_t v_at) {
#pragma unroll 8
    for (int key = 0; key < kWarpKeys; ++key) {
      Four weight[kR / 4], value[kOwn];
#pragma unroll
      for (int half = 0; half < kR / 4; ++half) {
        const int turned = kR == 8 ? half ^ (key & 1) : half;
        weight[half] = LoadFour(weights + key * kWarpRows * 4 + r * kR * 4 + turned * 16);
      }
#pragma unroll
      for (int m = 0; m < kOwn; ++m) value[m] = LoadFour(v_at + key * kRowBytes + m * 128);
#pragma unroll
      for (int i = 0; i < kR; ++i)
#pragma unroll
        for (int m = 0; m < kOwn; ++m)
#pragma unroll
          for (int e = 0; e < 4; ++e)
            out[i][m][e] = __builtin_fmaf(weight[i / 4].x[i % 4], value[m].x[e], out[i][m][e]);
    }
  }

  // Adds up the sums of the lanes that share a query.
  XPUD_DEVICE_MEMBER void AddLanes() {
#pragma unroll
    for (int i = 0; i < kR; ++i)
#pragma unroll
      for (int lanes = 4; lanes < 32; lanes *= 2) softmax[i].sum += Across(softmax[i].sum, lanes);
  }

  // The results of warps in shared memory, for queries of warp w: out, largest scores and sums.
  static XPUD_DEVICE_MEMBER float* TopsOf(float* memory) { return memory + kWarpsK * kRows * kDepth; }
  static XPUD_DEVICE_MEMBER float* SumsOf(float* memory) { return TopsOf(memory) + kWarpsK * kRows; }
  XPUD_DEVICE_MEMBER uint32_t OutAt(const float* memory, int w, int i, int m) const {
    return SharedAddress(memory) + (w * kRows + warp_q * kWarpRows + r + i * 4) * kRowBytes +
           (m * 8 + c) * 16;
  }
  XPUD_DEVICE_MEMBER void StoreResults(float* memory) const {
    float* const tops = TopsOf(memory);
    float* const sums = SumsOf(memory);
    const int mine = warp_q * kWarpRows + r;
    if (c == 0)
#pragma unroll
      for (int i = 0; i < kR; ++i) {
        tops[warp_k * kRows + mine + i * 4] = softmax[i].top;
        sums[warp_k * kRows + mine + i * 4] = softmax[i].sum;
      }
#pragma unroll
    for (int i = 0; i < kR; ++i)
#pragma unroll
      for (int m = 0; m < kOwn; ++m) {
        Four f;
#pragma unroll
        for (int e = 0; e < 4; ++e) f.x[e] = out[i][m][e];
        StoreFour(OutAt(memory, warp_k, i, m), f);
      }
  }
  // Adds the results of the other warps to those of the first.
  XPUD_DEVICE_MEMBER void AddWarps(float* memory) {
    const float* const tops = TopsOf(memory);
    const float* const sums = SumsOf(memory);
    const int mine = warp_q * kWarpRows + r;
#pragma unroll
    for (int i = 0; i < kR; ++i) {
      float most = softmax[i].top;
#pragma unroll
      for (int w = 1; w < kWarpsK; ++w) most = Max(most, tops[w * kRows + mine + i * 4]);
      const auto [base, shrink] = softmax[i].Raise(most);
      softmax[i].sum *= shrink;
      Shrink(i, shrink);
#pragma unroll 1
      for (int w = 1; w < kWarpsK; ++w) {
        const float other = Exp2(tops[w * kRows + mine + i * 4] - base);
        softmax[i].sum += sums[w * kRows + mine + i * 4] * other;
#pragma unroll
        for (int m = 0; m < kOwn; ++m) {
          const Four f = LoadFour(OutAt(memory, w, i, m));
#pragma unroll
          for (int e = 0; e < 4; ++e) out[i][m][e] = __builtin_fmaf(f.x[e], other, out[i][m][e]);
        }
      }
    }
  }

  XPUD_DEVICE_MEMBER void End(const AttentionArguments& p, const Block& block, int value_depth) const {
#pragma unroll
    for (int i = 0; i < kR; ++i) {
      const int64_t own = row + i * 4;
      if (own >= p.queries) continue;
      const Result<float> to = ResultOf<float>(p, block.b, block.h, own);
      if (c == 0) StoreLogsumexp(to, softmax[i].top, softmax[i].sum);
      const float inverse = InverseOf(softmax[i].sum);
#pragma unroll
      for (int m = 0; m < kOwn; ++m) {
        const int column = (m * 8 + c) * 4;
        if (column >= value_depth) continue;
        float* const at = (to.part != nullptr ? to.part : to.out) + column;
        asm volatile("st.global.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(at), "f"(out[i][m][0] * inverse),
                     "f"(out[i][m][1] * inverse), "f"(out[i][m][2] * inverse), "f"(out[i][m][3] * inverse)
                     : "memory");
      }
    }
  }
};

template <int kR, int kC, int kWarpsQ, int kWarpsK>
XPUD_DEVICE void Attend(const AttentionArguments& p) {
  using Own = Rows<kR, kC, kWarpsQ, kWarpsK>;
  constexpr int kRows = Own::kRows, kKeys = Own::kKeys, kLanes = Own::kLanes;
  constexpr int kMerged = kWarpsK > 1 ? kWarpsK * kRows * (kDepth + 2) : 0;
  constexpr int kUsed = kRows * kDepth + 2 * kKeys * kDepth + kWarpsQ * kWarpsK * Own::kWeights;
  XPUD_SHARED float memory[kUsed > kMerged ? kUsed : kMerged] __attribute__((aligned(128)));
  float* const q_tile = memory;
  float* const k_tile = q_tile + kRows * kDepth;
  float* const v_tile = k_tile + kKeys * kDepth;
  const int lane = Lane() % 32, warp = Lane() / 32;
  Own rows(lane, warp);
  const uint32_t weights = SharedAddress(v_tile + kKeys * kDepth + warp * Own::kWeights);

  const Block block = BlockOf(p, kRows);
  const Heads<float> heads = HeadsOf<float>(p, block);
  const KeyRange range = RangeOf(p, block.first + kRows);
  const float factor = static_cast<float>(p.scale) * kLog2E;
  rows.row = static_cast<int>(block.first) + rows.warp_q * Own::kWarpRows + rows.r;

  auto q_rows = TileRows<kRows, kLanes, true>::Of(q_tile, heads.q, p.q_strides.row, block.first, heads.depth);
  auto k_rows = TileRows<kKeys, kLanes, true>::Of(k_tile, heads.k, p.k_strides.row, range.begin, heads.depth);
  auto v_rows =
      TileRows<kKeys, kLanes, false>::Of(v_tile, heads.v, p.v_strides.row, range.begin, heads.value_depth);
  Begin(q_rows, static_cast<int>(p.queries));
  Begin(k_rows, range.end);
  CommitCopies();
  Begin(v_rows, range.end);
  CommitCopies();
  const uint32_t q_at = SharedAddress(q_tile) + (rows.warp_q * Own::kWarpRows + rows.r) * kRowBytes;
  const uint32_t k_at = SharedAddress(k_tile) + (rows.warp_k * Own::kWarpKeys + rows.c) * kRowBytes;
  const uint32_t v_at = SharedAddress(v_tile) + rows.warp_k * Own::kWarpKeys * kRowBytes + rows.c * 16;

  for (int at = range.begin; at < range.end; at += kKeys) {
    WaitForCopies<1>();
    Synchronize();
    rows.AddScores(q_at, k_at);
    WaitForCopies<0>();
    Synchronize();
    const int next = at + kKeys;
    if (next < range.end) Begin(k_rows, range.end);
    CommitCopies();

    const int key = at + rows.warp_k * Own::kWarpKeys + rows.c;  // the lane's first
    rows.AddMask(p, block, key, factor);
    rows.Hide(p, block.first, at, key, range.end);
    rows.Weigh();
    rows.StoreWeights(weights);
    rows.AddValues(weights, v_at);
    Synchronize();
    if (next < range.end) Begin(v_rows, range.end);
    CommitCopies();
  }

  rows.AddLanes();
  if constexpr (kWarpsK > 1) {
    // The warps' results for the same queries are added in the order of warps; the first warp gets the sum.
    WaitForCopies<0>();
    Synchronize();
    rows.StoreResults(memory);
    Synchronize();
    if (rows.warp_k != 0) return;
    rows.AddWarps(memory);
  }
  rows.End(p, block, heads.value_depth);
}

}  // namespace xpud::gpu

using namespace xpud::gpu;

// Chosen by measurement. The last number is the minimum of groups for which a multiprocessor has room: it
// limits registers.
#if XPUD_DEPTH == 32
XPUD_KERNEL_OF(128, 3) attention_tiled_many(const AttentionArguments p) { Attend<8, 4, 4, 1>(p); }
XPUD_KERNEL_OF(128, 4) attention_tiled_some(const AttentionArguments p) { Attend<4, 4, 2, 2>(p); }
XPUD_KERNEL_OF(128, 2) attention_tiled_few(const AttentionArguments p) { Attend<4, 4, 1, 4>(p); }
#elif XPUD_DEPTH == 64
XPUD_KERNEL_OF(64, 4) attention_tiled_many(const AttentionArguments p) { Attend<8, 4, 2, 1>(p); }
XPUD_KERNEL_OF(64, 4) attention_tiled_few(const AttentionArguments p) { Attend<4, 4, 1, 2>(p); }
#else
XPUD_KERNEL_OF(64, 4) attention_tiled_many(const AttentionArguments p) { Attend<4, 3, 2, 1>(p); }
XPUD_KERNEL_OF(64, 3) attention_tiled_few(const AttentionArguments p) { Attend<4, 2, 1, 2>(p); }
#endif
