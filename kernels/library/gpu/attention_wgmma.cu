// Attention of 16-bit types for Hopper's tensor cores, scores never stored: four warps multiply with wgmma, whose
// next product runs while the weights of the last one are made (FlashAttention-3's overlap; Shah et al., 2024).
// Compiled to PTX once for each XPUD_ELEMENT and XPUD_DEPTH; no masks.
#include "kernels/library/gpu/attention_arguments.h"
#include "kernels/library/gpu/attention_device.h"
#include "kernels/library/gpu/attention_tensor.h"
#include "kernels/library/gpu/device.h"

namespace xpud::gpu {

using T = XPUD_ELEMENT;
constexpr int kDepth = XPUD_DEPTH;
constexpr int kLanes = AttentionArguments::kMmaLanes;
constexpr int kRows = 64;
constexpr int kKeys = 64;            // of a tile
constexpr int kSpan = 64;            // columns of a slab: 128 bytes, the width of the swizzle
constexpr int kSlabs = kDepth / kSpan;
constexpr int kSlabBytes = kKeys * 128;
constexpr int kTileBytes = kSlabs * kSlabBytes;
constexpr int kTiles = kDepth == 64 ? 4 : 3;  // in shared memory

// Begins to copy kCount rows from row `first` on as slabs of 64 columns; what lies from row `size` on is 0.
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

// Shared memory as wgmma reads it: swizzled by 128 bytes, 8 rows of them 1024 bytes apart, slabs kSlabBytes.
XPUD_DEVICE uint64_t DescriptorOf(uint32_t at) {
  constexpr uint64_t kFixed = uint64_t{1} << 62 | uint64_t{1024 / 16} << 32 | uint64_t{kSlabBytes / 16} << 16;
  return kFixed | (at & 0x3ffff) >> 4;
}

#define XPUD_4(x, i) "+f"(x[i]), "+f"(x[i + 1]), "+f"(x[i + 2]), "+f"(x[i + 3])
#define XPUD_16(x, i) XPUD_4(x, i), XPUD_4(x, i + 4), XPUD_4(x, i + 8), XPUD_4(x, i + 12)
#define XPUD_32(x, i) XPUD_16(x, i), XPUD_16(x, i + 16)
#define XPUD_REGISTERS_32                                                                                  \
  "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, "  \
  "%22, %23, %24, %25, %26, %27, %28, %29, %30, %31}"
#define XPUD_REGISTERS_64                                                                                  \
  "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, "  \
  "%22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, "   \
  "%42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, "   \
  "%62, %63}"

XPUD_DEVICE void Fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
XPUD_DEVICE void Commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// Until all but kLeft of the groups that were committed last are done; only then may `x` be read.
template <int kLeft>
XPUD_DEVICE void WaitFor(float (&x)[32]) {
  asm volatile("wgmma.wait_group.sync.aligned %32;" : XPUD_32(x, 0) : "n"(kLeft) : "memory");
}
template <int kLeft>
XPUD_DEVICE void WaitFor(float (&x)[64]) {
  asm volatile("wgmma.wait_group.sync.aligned %64;" : XPUD_32(x, 0), XPUD_32(x, 32) : "n"(kLeft) : "memory");
}

#define XPUD_WGMMA_32(type)                                                                            \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %37, 0;\n"                                            \
               "wgmma.mma_async.sync.aligned.m64n64k16.f32." type "." type " " XPUD_REGISTERS_32       \
               ", {%32, %33, %34, %35}, %36, p, 1, 1, %38;\n}"                                         \
               : XPUD_32(c, 0)                                                                         \
               : "r"(a.x[0]), "r"(a.x[1]), "r"(a.x[2]), "r"(a.x[3]), "l"(b), "r"(adds), "n"(kTranspose))
#define XPUD_WGMMA_64(type)                                                                            \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %69, 0;\n"                                            \
               "wgmma.mma_async.sync.aligned.m64n128k16.f32." type "." type " " XPUD_REGISTERS_64      \
               ", {%64, %65, %66, %67}, %68, p, 1, 1, %70;\n}"                                         \
               : XPUD_32(c, 0), XPUD_32(c, 32)                                                         \
               : "r"(a.x[0]), "r"(a.x[1]), "r"(a.x[2]), "r"(a.x[3]), "l"(b), "r"(adds), "n"(kTranspose))

// Begins c = a b, or, where it adds, c += a b; a has 16 columns. Transposed: b's rows are contiguous.
template <int kTranspose>
XPUD_DEVICE void Multiply(float (&c)[32], const Fragment& a, uint64_t b, int adds) {
  if constexpr (__is_same(T, BFloat16))
    XPUD_WGMMA_32("bf16");
  else
    XPUD_WGMMA_32("f16");
}
template <int kTranspose>
XPUD_DEVICE void Multiply(float (&c)[64], const Fragment& a, uint64_t b, int adds) {
  if constexpr (__is_same(T, BFloat16))
    XPUD_WGMMA_64("bf16");
  else
    XPUD_WGMMA_64("f16");
}

// Begins score = query k^T.
XPUD_DEVICE void BeginScores(float (&score)[32], const Fragment (&query)[kDepth / 16], uint32_t k_tile) {
  Fence();
#pragma unroll
  for (int d = 0; d < kDepth / 16; ++d)
    Multiply<0>(score, query[d], DescriptorOf(k_tile + d / 4 * kSlabBytes + d % 4 * 32), d != 0);
  Commit();
}

// Begins out += weight v.
XPUD_DEVICE void BeginOut(float (&out)[kDepth / 2], const Fragment (&weight)[kKeys / 16], uint32_t v_tile) {
  Fence();
#pragma unroll
  for (int n = 0; n < kKeys / 16; ++n) Multiply<1>(out, weight[n], DescriptorOf(v_tile + n * 2048), 1);
  Commit();
}

// Makes copies of all lanes visible to wgmma.
XPUD_DEVICE void Publish() {
  WaitForCopies<0>();
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  Synchronize();
}

XPUD_DEVICE void Attend(const AttentionArguments& p) {
  constexpr int kMemory = kTiles * kTileBytes > kRows * kDepth * 2 ? kTiles * kTileBytes : kRows * kDepth * 2;
  XPUD_SHARED char memory[kMemory] __attribute__((aligned(1024)));
  const uint32_t base_at = SharedAddress(memory);
  const int lane = Lane() % 32, warp = Lane() / 32;
  const int64_t groups = (p.queries + kRows - 1) / kRows;
  const int64_t group = GroupX() % groups, h = GroupX() / groups % p.heads, b = GroupX() / groups / p.heads;
  const int first = static_cast<int>((p.causal ? groups - 1 - group : group) * kRows);
  const int64_t kh = h / p.heads_per_key_head;
  const T* const q = static_cast<const T*>(p.q) + b * p.q_strides.batch + h * p.q_strides.head;
  const T* const k = static_cast<const T*>(p.k) + b * p.k_strides.batch + kh * p.k_strides.head;
  const T* const v = static_cast<const T*>(p.v) + b * p.v_strides.batch + kh * p.v_strides.head;
  const int depth = static_cast<int>(p.depth), value_depth = static_cast<int>(p.value_depth);
  const KeyRange range = RangeOf(p, first + kRows);
  const int keys = range.end;
  const int row0 = first + warp * 16 + lane / 4;  // of this lane; the other one is 8 below
  const float factor = static_cast<float>(p.scale) * kLog2E;

  BeginTile<kRows>(base_at, q, p.q_strides.row, first, static_cast<int>(p.queries), depth);
  CommitCopies();
  WaitForCopies<0>();
  Synchronize();
  Fragment query[kDepth / 16];
#pragma unroll
  for (int d = 0; d < kDepth / 16; ++d) {
    const int row = warp * 16 + lane % 16, chunk = d * 2 + lane / 16;
    query[d] = LoadMatrices(base_at + chunk / 8 * kRows * 128 + row * 128 + (chunk % 8 ^ row % 8) * 16);
  }
  Synchronize();

  float score[32], out[kDepth / 2] = {}, top[2], sum[2] = {};
  top[0] = top[1] = -__builtin_inff();
  // Keys have one tile, which is free again once their scores are known, or two in turn; values have two.
  constexpr int kKeyTiles = kTiles - 2;
  const auto k_tile = [&](int tile) { return base_at + tile % kKeyTiles * kTileBytes; };
  const auto v_tile = [&](int tile) { return base_at + (kKeyTiles + tile % 2) * kTileBytes; };
  const int tiles = keys > range.begin ? (keys - range.begin + kKeys - 1) / kKeys : 0;
  const auto begin_k = [&](int tile) {
    if (tile < tiles) BeginTile<kKeys>(k_tile(tile), k, p.k_strides.row, range.begin + tile * kKeys, keys, depth);
    CommitCopies();
  };
  const auto begin_v = [&](int tile) {
    if (tile < tiles) BeginTile<kKeys>(v_tile(tile), v, p.v_strides.row, range.begin + tile * kKeys, keys, value_depth);
    CommitCopies();
  };
  if (tiles > 0) {
    begin_k(0);
    Publish();
    BeginScores(score, query, k_tile(0));
    begin_v(0);
    if constexpr (kKeyTiles > 1) begin_k(1);
    WaitFor<0>(score);
    if constexpr (kKeyTiles == 1) {
      Synchronize();
      begin_k(1);
    }
    Publish();
  }

  // Attends to a tile whose scores are known, and begins with the next, unless this is the last.
  const auto attend = [&]<bool kLast>(int tile) __attribute__((always_inline)) {
    float next[32];
    if constexpr (!kLast) {
      BeginScores(next, query, k_tile(tile + 1));
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
      for (int n = 0; n < 8; ++n)
        most = Max(most, Max(score[n * 4 + half * 2], score[n * 4 + half * 2 + 1]));
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

    BeginOut(out, weight, v_tile(tile));
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
    float total = sum[half];
    total += Across(total, 1);
    total += Across(total, 2);
    const float inverse = total == 0 ? 0.0f : 1.0f / total;
    const int row = row0 + half * 8;
    if (row >= p.queries) continue;
    const Result<T> to = ResultOf<T>(p, b, h, row);
    if (lane % 4 == 0) StoreLogsumexp(to, top[half], total);
#pragma unroll
    for (int n = 0; n < kDepth / 8; ++n) {
      if (n * 8 >= value_depth) continue;
      StorePair(to, n * 8 + lane % 4 * 2, out[n * 4 + half * 2] * inverse,
                out[n * 4 + half * 2 + 1] * inverse);
    }
  }
}

}  // namespace xpud::gpu

using namespace xpud::gpu;

// The second number is of groups that a multiprocessor has room for at least: they make up for each other's waiting.
XPUD_KERNEL_OF(128, kDepth == 64 ? 3 : 2) attention_wgmma(const AttentionArguments p) { Attend(p); }
