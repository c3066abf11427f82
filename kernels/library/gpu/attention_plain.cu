// Attention of any layout, type and depth by multiply-add, without storing scores. Compiled to PTX once for
// each XPUD_ELEMENT.
#include <stdbool.h>

#pragma clang force_cuda_host_device begin
namespace {
#include "kernels/compiler/math.c"
}
#pragma clang force_cuda_host_device end

#include "kernels/library/gpu/attention_scalar.h"

namespace xpud::gpu {

// Four elements of a tile in one access, which LLVM would split.
template <typename W>
struct Four {
  W x[4];
};
XPUD_DEVICE uint32_t SharedAddress(const void* p) {
  return static_cast<uint32_t>(reinterpret_cast<uintptr_t>((__attribute__((address_space(3))) const void*)p));
}
XPUD_DEVICE Four<float> LoadFour(const float* from) {
  Four<float> f;
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(f.x[0]), "=f"(f.x[1]), "=f"(f.x[2]), "=f"(f.x[3])
               : "r"(SharedAddress(from))
               : "memory");
  return f;
}
XPUD_DEVICE Four<double> LoadFour(const double* from) {
  Four<double> f;
  asm volatile("ld.shared.v2.f64 {%0, %1}, [%4];\nld.shared.v2.f64 {%2, %3}, [%4+16];"
               : "=&d"(f.x[0]), "=&d"(f.x[1]), "=&d"(f.x[2]), "=&d"(f.x[3])
               : "r"(SharedAddress(from))
               : "memory");
  return f;
}

template <typename W>
XPUD_DEVICE void StoreLogsumexp(const AttentionArguments& p, int64_t b, int64_t h, int64_t row, W top,
                                W sum) {
  if (p.logsumexp == nullptr) return;
  const HeadStrides& s = p.logsumexp_strides;
  const int64_t place = b * s.batch + h * s.head + row * s.row;
  const W value = sum == 0 ? W(0) : top + Log(sum);
  if (p.wide_logsumexp != 0)
    static_cast<double*>(static_cast<void*>(p.logsumexp))[place] = value;
  else
    p.logsumexp[place] = static_cast<float>(value);
}

// `spread` lanes hold a query's row of q and of out: 4 elements each of every run of 4 * spread elements.
template <typename T>
XPUD_DEVICE void AttendPlain(const AttentionArguments& p) {
  using W = typename Wide<T>::type;
  constexpr int kSlice = AttentionArguments::kPlainSlice, kLanes = AttentionArguments::kPlainLanes;
  constexpr int kTileElements = AttentionArguments::kPlainTileBytes / sizeof(W);
  constexpr int kStep = AttentionArguments::kPlainStep;
  XPUD_SHARED W k_tile[kTileElements] __attribute__((aligned(16)));
  XPUD_SHARED W v_tile[kTileElements] __attribute__((aligned(16)));
  const int spread = p.spread, padded = spread * kSlice, tile_keys = kTileElements / padded;
  const int shift = __builtin_ctz(padded), rows = kLanes / spread, part = Lane() % spread;
  const int64_t groups = (p.queries + rows - 1) / rows;
  const auto [group, h, b] = PositionOf(GroupX(), groups, p.heads);
  const int64_t first = (p.causal ? groups - 1 - group : group) * rows, row = first + Lane() / spread;
  const bool inside = row < p.queries;
  const int64_t kh = Quotient(h, p.heads_per_key_head);
  const T* const k = Head<T>(p.k, p.k_strides, b, kh);
  const T* const v = Head<T>(p.v, p.v_strides, b, kh);
  const W scale = static_cast<W>(p.scale);

  W query[kSlice], out[kSlice];
#pragma unroll
  for (int i = 0; i < kSlice; ++i) {
    const int column = (i / 4 * spread + part) * 4 + i % 4;
    out[i] = 0;
    query[i] =
        inside && column < p.depth
            ? Load(Head<T>(p.q, p.q_strides, b, h)[row * p.q_strides.row + column * p.q_strides.column])
            : W(0);
  }
  W top = -__builtin_inf(), sum = 0;
  const int64_t keys = p.causal ? Least(p.keys, first + rows) : p.keys;
  for (int64_t at = 0; at < keys; at += tile_keys) {
    const int count = static_cast<int>(Least<int64_t>(tile_keys, keys - at));
#pragma unroll 8
    for (int step = 0; step < kTileElements / kLanes; ++step) {
      const int i = step * kLanes + Lane(), key = i >> shift, column = i & (padded - 1);
      k_tile[i] = key < count && column < p.depth
                      ? Load(k[(at + key) * p.k_strides.row + column * p.k_strides.column])
                      : W(0);
      v_tile[i] = key < count && column < p.value_depth
                      ? Load(v[(at + key) * p.v_strides.row + column * p.v_strides.column])
                      : W(0);
    }
    Synchronize();
    for (int key = 0; key < count; key += kStep) {
      W score[kStep] = {};
#pragma unroll
      for (int i = 0; i < kSlice / 4; ++i)
#pragma unroll
        for (int j = 0; j < kStep; ++j) {
          const auto f = LoadFour(k_tile + (key + j) * padded + (i * spread + part) * 4);
#pragma unroll
          for (int e = 0; e < 4; ++e)
            score[j] = __builtin_elementwise_fma(query[i * 4 + e], f.x[e], score[j]);
        }
      for (int lanes = 1; lanes < spread; lanes *= 2)
#pragma unroll
        for (int j = 0; j < kStep; ++j) score[j] += Across(score[j], lanes);
#pragma unroll
      for (int j = 0; j < kStep; ++j)
        score[j] = inside && key + j < count ? Masked<T>(p, b, h, row, at + key + j, score[j] * scale)
                                             : W(-__builtin_inf());
      W most = top;
#pragma unroll
      for (int j = 0; j < kStep; ++j) most = __builtin_elementwise_max(most, score[j]);
      const W base = most == W(-__builtin_inf()) ? W(0) : most;
      const W shrink = Exp(top - base);
      top = most;
      if (shrink != 1) {
        sum *= shrink;
#pragma unroll
        for (int i = 0; i < kSlice; ++i) out[i] *= shrink;
      }
      bool kept[kStep];
      if (p.threshold != 0) KeepAdjacent(p, ElementOf(p, b, h, row, at + key), kept);
#pragma unroll
      for (int j = 0; j < kStep; ++j) {
        W weight = Exp(score[j] - base);
        sum += weight;
        if (p.threshold != 0) weight = kept[j] ? weight * static_cast<W>(p.factor) : W(0);
#pragma unroll
        for (int i = 0; i < kSlice / 4; ++i) {
          const auto f = LoadFour(v_tile + (key + j) * padded + (i * spread + part) * 4);
#pragma unroll
          for (int e = 0; e < 4; ++e)
            out[i * 4 + e] = __builtin_elementwise_fma(weight, f.x[e], out[i * 4 + e]);
        }
      }
    }
    Synchronize();
  }
  if (!inside) return;
  if (part == 0) StoreLogsumexp(p, b, h, row, top, sum);
  const W inverse = sum == 0 ? W(0) : W(1) / sum;
  T* const to = const_cast<T*>(Head<T>(p.out, p.out_strides, b, h)) + row * p.out_strides.row;
#pragma unroll
  for (int i = 0; i < kSlice; ++i) {
    const int column = (i / 4 * spread + part) * 4 + i % 4;
    if (column < p.value_depth) Store(to[column * p.out_strides.column], out[i] * inverse);
  }
}

// A group takes one query: warps share the keys of a tile, then lanes share the columns of out.
template <typename T>
XPUD_DEVICE void AttendWide(const AttentionArguments& p) {
  using W = typename Wide<T>::type;
  constexpr int kLanes = AttentionArguments::kWideLanes, kKeys = 64,
                kOwn = AttentionArguments::kWideColumns / kLanes;
  XPUD_SHARED W score[kKeys], factor[kKeys];
  const auto [row, h, b] = PositionOf(GroupX(), p.queries, p.heads);
  const int64_t kh = Quotient(h, p.heads_per_key_head),
                column = GroupY() * AttentionArguments::kWideColumns + Lane();
  const T* const q = Head<T>(p.q, p.q_strides, b, h) + row * p.q_strides.row;
  const T* const k = Head<T>(p.k, p.k_strides, b, kh);
  const T* const v = Head<T>(p.v, p.v_strides, b, kh);
  const int64_t keys = p.causal ? Least(p.keys, row + 1) : p.keys;
  W out[kOwn] = {}, top = -__builtin_inf(), sum = 0;
  for (int64_t at = 0; at < keys; at += kKeys) {
    const int count = static_cast<int>(Least<int64_t>(kKeys, keys - at));
    for (int key = Lane() / 32; key < count; key += kLanes / 32) {
      W dot = 0;
      for (int64_t d = Lane() % 32; d < p.depth; d += 32)
        dot = __builtin_elementwise_fma(Load(q[d * p.q_strides.column]),
                                        Load(k[(at + key) * p.k_strides.row + d * p.k_strides.column]), dot);
      for (int lanes = 1; lanes < 32; lanes *= 2) dot += Across(dot, lanes);
      if (Lane() % 32 != 0) continue;
      score[key] = Masked<T>(p, b, h, row, at + key, dot * static_cast<W>(p.scale));
      factor[key] = FactorOf<W>(p, ElementOf(p, b, h, row, at + key));
    }
    Synchronize();
    W most = top;
    for (int key = 0; key < count; ++key) most = __builtin_elementwise_max(most, score[key]);
    const W base = most == W(-__builtin_inf()) ? W(0) : most;
    const W shrink = Exp(top - base);
    top = most;
    sum *= shrink;
#pragma unroll
    for (int i = 0; i < kOwn; ++i) out[i] *= shrink;
    for (int key = 0; key < count; ++key) {
      const W all = Exp(score[key] - base), weight = all * factor[key];
      sum += all;
#pragma unroll
      for (int i = 0; i < kOwn; ++i)
        if (column + i * kLanes < p.value_depth)
          out[i] = __builtin_elementwise_fma(
              weight, Load(v[(at + key) * p.v_strides.row + (column + i * kLanes) * p.v_strides.column]),
              out[i]);
    }
    Synchronize();
  }
  if (column == 0) StoreLogsumexp(p, b, h, row, top, sum);
  const W inverse = sum == 0 ? W(0) : W(1) / sum;
  T* const to = const_cast<T*>(Head<T>(p.out, p.out_strides, b, h)) + row * p.out_strides.row;
#pragma unroll
  for (int i = 0; i < kOwn; ++i)
    if (column + i * kLanes < p.value_depth)
      Store(to[(column + i * kLanes) * p.out_strides.column], out[i] * inverse);
}

}  // namespace xpud::gpu

using namespace xpud::gpu;

XPUD_KERNEL(128) attention_plain(const AttentionArguments p) { AttendPlain<XPUD_ELEMENT>(p); }
XPUD_KERNEL(256) attention_wide(const AttentionArguments p) { AttendWide<XPUD_ELEMENT>(p); }
