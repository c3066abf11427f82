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
struct Rows {
  static constexpr int kStep = kLanes / kChunks;  // rows that the lanes copy at once
  static_assert(kCount % kStep == 0);

  const char* from;  // start of this lane's next row
  int64_t stride;    // in bytes
  uint32_t to;
  int row;  // number of this lane's next row
  bool inside;

  XPUD_DEVICE Rows Of(float* tile, const float* rows, int64_t stride, int64_t first, int depth) {
    const int row = Lane() / kChunks, chunk = Lane() % kChunks;
    return {reinterpret_cast<const char*>(rows + (first + row) * stride + chunk * 4), stride * 4,
            SharedAddress(tile) + row * kRowBytes, static_cast<int>(first) + row, chunk * 4 < depth};
  }
};

// Begins to copy the next rows. Rows from `size` on become 0.
template <int kCount, int kLanes, bool kTurned>
XPUD_DEVICE void Begin(Rows<kCount, kLanes, kTurned>& rows, int size) {
  constexpr int kStep = Rows<kCount, kLanes, kTurned>::kStep;
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

// A warp has 4 kR queries and 8 kC keys. A lane has queries r + 4 i, keys c + 8 j, and chunks c + 8 m of out
// for its queries. kWarpsQ warps have different queries, kWarpsK warps different keys.
template <int kR, int kC, int kWarpsQ, int kWarpsK>
XPUD_DEVICE void Attend(const AttentionArguments& p) {
  constexpr int kWarpRows = 4 * kR, kRows = kWarpsQ * kWarpRows, kWarpKeys = 8 * kC,
                kKeys = kWarpsK * kWarpKeys, kLanes = 32 * kWarpsQ * kWarpsK, kOwn = kDepth / 32;
  constexpr int kWeights =
      kWarpKeys * kWarpRows;  // of a warp: transposed, so that a lane's queries are adjacent
  constexpr int kMerged = kWarpsK > 1 ? kWarpsK * kRows * (kDepth + 2) : 0;
  constexpr int kUsed = kRows * kDepth + 2 * kKeys * kDepth + kWarpsQ * kWarpsK * kWeights;
  XPUD_SHARED float memory[kUsed > kMerged ? kUsed : kMerged] __attribute__((aligned(128)));
  float* const q_tile = memory;
  float* const k_tile = q_tile + kRows * kDepth;
  float* const v_tile = k_tile + kKeys * kDepth;
  const int lane = Lane() % 32, warp = Lane() / 32, r = lane % 4, c = lane / 4;
  const int warp_q = warp % kWarpsQ, warp_k = warp / kWarpsQ;
  const uint32_t weights = SharedAddress(v_tile + kKeys * kDepth + warp * kWeights);

  const int64_t groups = (p.queries + kRows - 1) / kRows;
  const auto [group, h, b] = PositionOf(GroupX(), groups, p.heads);
  const int64_t first = (p.causal ? groups - 1 - group : group) * kRows;
  const int64_t kh = Quotient(h, p.heads_per_key_head);
  const float* const q = static_cast<const float*>(p.q) + b * p.q_strides.batch + h * p.q_strides.head;
  const float* const k = static_cast<const float*>(p.k) + b * p.k_strides.batch + kh * p.k_strides.head;
  const float* const v = static_cast<const float*>(p.v) + b * p.v_strides.batch + kh * p.v_strides.head;
  const int depth = static_cast<int>(p.depth), value_depth = static_cast<int>(p.value_depth);
  const KeyRange range = RangeOf(p, first + kRows);
  const float factor = static_cast<float>(p.scale) * kLog2E;
  const int row0 = static_cast<int>(first) + warp_q * kWarpRows + r;

  float out[kR][kOwn][4] = {}, top[kR], sum[kR] = {};
#pragma unroll
  for (int i = 0; i < kR; ++i) top[i] = -__builtin_inff();

  auto q_rows = Rows<kRows, kLanes, true>::Of(q_tile, q, p.q_strides.row, first, depth);
  auto k_rows = Rows<kKeys, kLanes, true>::Of(k_tile, k, p.k_strides.row, range.begin, depth);
  auto v_rows = Rows<kKeys, kLanes, false>::Of(v_tile, v, p.v_strides.row, range.begin, value_depth);
  Begin(q_rows, static_cast<int>(p.queries));
  Begin(k_rows, range.end);
  CommitCopies();
  Begin(v_rows, range.end);
  CommitCopies();
  const uint32_t q_at = SharedAddress(q_tile) + (warp_q * kWarpRows + r) * kRowBytes;
  const uint32_t k_at = SharedAddress(k_tile) + (warp_k * kWarpKeys + c) * kRowBytes;
  const uint32_t v_at = SharedAddress(v_tile) + warp_k * kWarpKeys * kRowBytes + c * 16;

  for (int at = range.begin; at < range.end; at += kKeys) {
    WaitForCopies<1>();
    Synchronize();
    float score[kR][kC] = {};
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
    WaitForCopies<0>();
    Synchronize();
    const int next = at + kKeys;
    if (next < range.end) Begin(k_rows, range.end);
    CommitCopies();

    const int key0 = at + warp_k * kWarpKeys + c;
#pragma unroll
    for (int i = 0; i < kR; ++i)
#pragma unroll
      for (int j = 0; j < kC; ++j) score[i][j] *= factor;
    if (p.mask_kind != MaskKind::kNone) {
      const int64_t head = b * p.mask_strides.batch + h * p.mask_strides.head;
      const int last_row = static_cast<int>(p.queries) - 1, last_key = static_cast<int>(p.keys) - 1;
#pragma unroll
      for (int i = 0; i < kR; ++i)
#pragma unroll
        for (int j = 0; j < kC; ++j) {
          const int64_t place = head + Least(row0 + i * 4, last_row) * p.mask_strides.row +
                                Least(key0 + j * 8, last_key) * p.mask_strides.column;
          if (p.mask_kind == MaskKind::kAdded)
            score[i][j] += MaskUnits(static_cast<const float*>(p.mask)[place]);
          else if (static_cast<const uint8_t*>(p.mask)[place] == 0)
            score[i][j] = -__builtin_inff();
        }
    }
    if (next > range.end || (p.causal && next - 1 > first)) {
#pragma unroll
      for (int i = 0; i < kR; ++i)
#pragma unroll
        for (int j = 0; j < kC; ++j) {
          const int key = key0 + j * 8;
          if (key >= range.end || (p.causal && key > row0 + i * 4)) score[i][j] = -__builtin_inff();
        }
    }

#pragma unroll
    for (int i = 0; i < kR; ++i) {
      float most = score[i][0];
#pragma unroll
      for (int j = 1; j < kC; ++j) most = Max(most, score[i][j]);
#pragma unroll
      for (int lanes = 4; lanes < 32; lanes *= 2) most = Max(most, Across(most, lanes));
      most = Max(top[i], most);
      const float base = most == -__builtin_inff() ? 0.0f : most;
      const float shrink = Exp2(top[i] - base);
      top[i] = most;
      sum[i] *= shrink;
#pragma unroll
      for (int j = 0; j < kC; ++j) sum[i] += score[i][j] = Exp2(score[i][j] - base);
#pragma unroll
      for (int m = 0; m < kOwn; ++m)
#pragma unroll
        for (int e = 0; e < 4; ++e) out[i][m][e] *= shrink;
    }
    // For odd keys, the halves of 8 queries are exchanged, so that two keys use all banks.
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
    Synchronize();
    if (next < range.end) Begin(v_rows, range.end);
    CommitCopies();
  }

#pragma unroll
  for (int i = 0; i < kR; ++i)
#pragma unroll
    for (int lanes = 4; lanes < 32; lanes *= 2) sum[i] += Across(sum[i], lanes);

  if constexpr (kWarpsK > 1) {
    // The warps' results for the same queries are added in the order of warps; the first warp gets the sum.
    WaitForCopies<0>();
    Synchronize();
    float* const tops = memory + kWarpsK * kRows * kDepth;
    float* const sums = tops + kWarpsK * kRows;
    const int mine = warp_q * kWarpRows + r;
    if (c == 0)
#pragma unroll
      for (int i = 0; i < kR; ++i) {
        tops[warp_k * kRows + mine + i * 4] = top[i];
        sums[warp_k * kRows + mine + i * 4] = sum[i];
      }
#pragma unroll
    for (int i = 0; i < kR; ++i)
#pragma unroll
      for (int m = 0; m < kOwn; ++m) {
        Four f;
#pragma unroll
        for (int e = 0; e < 4; ++e) f.x[e] = out[i][m][e];
        StoreFour(SharedAddress(memory) + (warp_k * kRows + mine + i * 4) * kRowBytes + (m * 8 + c) * 16, f);
      }
    Synchronize();
    if (warp_k != 0) return;
#pragma unroll
    for (int i = 0; i < kR; ++i) {
      float most = top[i];
#pragma unroll
      for (int w = 1; w < kWarpsK; ++w) most = Max(most, tops[w * kRows + mine + i * 4]);
      const float base = most == -__builtin_inff() ? 0.0f : most;
      const float shrink = Exp2(top[i] - base);
      sum[i] *= shrink;
#pragma unroll
      for (int m = 0; m < kOwn; ++m)
#pragma unroll
        for (int e = 0; e < 4; ++e) out[i][m][e] *= shrink;
#pragma unroll 1
      for (int w = 1; w < kWarpsK; ++w) {
        const float other = Exp2(tops[w * kRows + mine + i * 4] - base);
        sum[i] += sums[w * kRows + mine + i * 4] * other;
#pragma unroll
        for (int m = 0; m < kOwn; ++m) {
          const Four f =
              LoadFour(SharedAddress(memory) + (w * kRows + mine + i * 4) * kRowBytes + (m * 8 + c) * 16);
#pragma unroll
          for (int e = 0; e < 4; ++e) out[i][m][e] = __builtin_fmaf(f.x[e], other, out[i][m][e]);
        }
      }
      top[i] = most;
    }
  }

#pragma unroll
  for (int i = 0; i < kR; ++i) {
    const int64_t row = row0 + i * 4;
    if (row >= p.queries) continue;
    const Result<float> to = ResultOf<float>(p, b, h, row);
    if (c == 0) StoreLogsumexp(to, top[i], sum[i]);
    const float inverse = sum[i] == 0 ? 0.0f : 1.0f / sum[i];
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
