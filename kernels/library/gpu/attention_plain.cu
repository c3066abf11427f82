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

// Reads `count` rows of keys and values, from `at` on, to tiles. Other elements become 0.
template <int kLanes, int kTileElements, typename T, typename W>
XPUD_DEVICE void ReadTiles(const AttentionArguments& p, const T* k, const T* v, int64_t at, int count,
                           int padded, int shift, W* k_tile, W* v_tile) {
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
}

// A lane's part of a query. `spread` lanes hold the query's row of q and of out: 4 elements each of every run
// of 4 * spread elements.
template <typename T>
struct Row {
  using W = typename Wide<T>::type;
  static constexpr int kSlice = AttentionArguments::kPlainSlice;
  static constexpr int kStep = AttentionArguments::kPlainStep;  // keys at once

  const int spread, part, padded;  // padded: columns of a tile
  W query[kSlice], out[kSlice];
  W score[kStep];
  NaturalSoftmax<W> softmax;

  XPUD_DEVICE_MEMBER Row(int spread, int part, int padded) : spread(spread), part(part), padded(padded) {}

  XPUD_DEVICE_MEMBER int ColumnOf(int i) const { return (i / 4 * spread + part) * 4 + i % 4; }

  XPUD_DEVICE_MEMBER void ReadQuery(const AttentionArguments& p, int64_t b, int64_t h, int64_t row,
                                    bool inside) {
#pragma unroll
    for (int i = 0; i < kSlice; ++i) {
      const int column = ColumnOf(i);
      out[i] = 0;
      query[i] =
          inside && column < p.depth
              ? Load(HeadOf<T>(p.q, p.q_strides, b, h)[row * p.q_strides.row + column * p.q_strides.column])
              : W(0);
    }
  }

  // Computes the scores of kStep keys of a tile.
  XPUD_DEVICE_MEMBER void AddScores(const W* k_tile, int key) {
#pragma unroll
    for (W& x : score) x = 0;
#pragma unroll
    for (int i = 0; i < kSlice / 4; ++i)
#pragma unroll
      for (int j = 0; j < kStep; ++j) {
        const auto f = LoadFour(k_tile + (key + j) * padded + (i * spread + part) * 4);
#pragma unroll
        for (int e = 0; e < 4; ++e) score[j] = __builtin_elementwise_fma(query[i * 4 + e], f.x[e], score[j]);
      }
    for (int lanes = 1; lanes < spread; lanes *= 2)
#pragma unroll
      for (int j = 0; j < kStep; ++j) score[j] += Across(score[j], lanes);
  }

  // Applies `scale` and the call's mask, and removes the scores of keys to which the query does not attend.
  // The tile has `count` keys, from `at` on.
  XPUD_DEVICE_MEMBER void AddMask(const AttentionArguments& p, int64_t b, int64_t h, int64_t row, bool inside,
                                  int64_t at, int key, int count, W scale) {
#pragma unroll
    for (int j = 0; j < kStep; ++j)
      score[j] = inside && key + j < count ? Masked<T>(p, b, h, row, at + key + j, score[j] * scale)
                                           : W(-__builtin_inf());
  }

  // Raises the softmax's maximum, and returns what weights are relative to. Out shrinks.
  XPUD_DEVICE_MEMBER W Raise() {
    W most = softmax.top;
#pragma unroll
    for (int j = 0; j < kStep; ++j) most = __builtin_elementwise_max(most, score[j]);
    const auto [base, shrink] = softmax.Raise(most);
    if (shrink != 1) {
      softmax.sum *= shrink;
#pragma unroll
      for (int i = 0; i < kSlice; ++i) out[i] *= shrink;
    }
    return base;
  }

  // Turns a score into a weight.
  XPUD_DEVICE_MEMBER W Weigh(int j, W base) {
    const W weight = Exp(score[j] - base);
    softmax.sum += weight;
    return weight;
  }

  // Adds the values of a key of a tile, weighted.
  XPUD_DEVICE_MEMBER void AddValues(const W* v_tile, int key, W weight) {
#pragma unroll
    for (int i = 0; i < kSlice / 4; ++i) {
      const auto f = LoadFour(v_tile + key * padded + (i * spread + part) * 4);
#pragma unroll
      for (int e = 0; e < 4; ++e) out[i * 4 + e] = __builtin_elementwise_fma(weight, f.x[e], out[i * 4 + e]);
    }
  }

  XPUD_DEVICE_MEMBER void End(const AttentionArguments& p, int64_t b, int64_t h, int64_t row) const {
    if (part == 0) StoreLogsumexp(p, b, h, row, softmax.top, softmax.sum);
    const W inverse = InverseOf(softmax.sum);
    T* const to = const_cast<T*>(HeadOf<T>(p.out, p.out_strides, b, h)) + row * p.out_strides.row;
#pragma unroll
    for (int i = 0; i < kSlice; ++i) {
      const int column = ColumnOf(i);
      if (column < p.value_depth) Store(to[column * p.out_strides.column], out[i] * inverse);
    }
  }
};

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
  const auto [first, h, b, kh] = BlockOf(p, rows);
  const int64_t row = first + Lane() / spread;
  const bool inside = row < p.queries;
  const T* const k = HeadOf<T>(p.k, p.k_strides, b, kh);
  const T* const v = HeadOf<T>(p.v, p.v_strides, b, kh);
  const W scale = static_cast<W>(p.scale);

  Row<T> own(spread, part, padded);
  own.ReadQuery(p, b, h, row, inside);
  const int64_t keys = p.causal ? Least(p.keys, first + rows) : p.keys;
  for (int64_t at = 0; at < keys; at += tile_keys) {
    const int count = static_cast<int>(Least<int64_t>(tile_keys, keys - at));
    ReadTiles<kLanes, kTileElements>(p, k, v, at, count, padded, shift, k_tile, v_tile);
    Synchronize();
    for (int key = 0; key < count; key += kStep) {
      own.AddScores(k_tile, key);
      own.AddMask(p, b, h, row, inside, at, key, count, scale);
      const W base = own.Raise();
      bool kept[kStep];
      if (p.threshold != 0) KeepAdjacent(p, ElementOf(p, b, h, row, at + key), kept);
#pragma unroll
      for (int j = 0; j < kStep; ++j) {
        W weight = own.Weigh(j, base);
        if (p.threshold != 0) weight = kept[j] ? weight * static_cast<W>(p.factor) : W(0);
        own.AddValues(v_tile, key + j, weight);
      }
    }
    Synchronize();
  }
  if (inside) own.End(p, b, h, row);
}

// A group takes one query: warps share the keys of a tile, then lanes share the columns of out.
template <typename T>
XPUD_DEVICE void AttendWide(const AttentionArguments& p) {
  using W = typename Wide<T>::type;
  constexpr int kLanes = AttentionArguments::kWideLanes, kKeys = 64,
                kOwn = AttentionArguments::kWideColumns / kLanes;
  XPUD_SHARED W score[kKeys], factor[kKeys];
  const auto [row, h, b, kh] = BlockOfOne(p);
  const int64_t column = GroupY() * AttentionArguments::kWideColumns + Lane();
  const T* const q = HeadOf<T>(p.q, p.q_strides, b, h) + row * p.q_strides.row;
  const T* const k = HeadOf<T>(p.k, p.k_strides, b, kh);
  const T* const v = HeadOf<T>(p.v, p.v_strides, b, kh);
  const int64_t keys = p.causal ? Least(p.keys, row + 1) : p.keys;
  W out[kOwn] = {};
  NaturalSoftmax<W> softmax;
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
    W most = softmax.top;
    for (int key = 0; key < count; ++key) most = __builtin_elementwise_max(most, score[key]);
    const auto [base, shrink] = softmax.Raise(most);
    softmax.sum *= shrink;
#pragma unroll
    for (int i = 0; i < kOwn; ++i) out[i] *= shrink;
    for (int key = 0; key < count; ++key) {
      const W all = Exp(score[key] - base), weight = all * factor[key];
      softmax.sum += all;
#pragma unroll
      for (int i = 0; i < kOwn; ++i)
        if (column + i * kLanes < p.value_depth)
          out[i] = __builtin_elementwise_fma(
              weight, Load(v[(at + key) * p.v_strides.row + (column + i * kLanes) * p.v_strides.column]),
              out[i]);
    }
    Synchronize();
  }
  if (column == 0) StoreLogsumexp(p, b, h, row, softmax.top, softmax.sum);
  const W inverse = InverseOf(softmax.sum);
  T* const to = const_cast<T*>(HeadOf<T>(p.out, p.out_strides, b, h)) + row * p.out_strides.row;
#pragma unroll
  for (int i = 0; i < kOwn; ++i)
    if (column + i * kLanes < p.value_depth)
      Store(to[(column + i * kLanes) * p.out_strides.column], out[i] * inverse);
}

}  // namespace xpud::gpu

using namespace xpud::gpu;

XPUD_KERNEL(128) attention_plain(const AttentionArguments p) { AttendPlain<XPUD_ELEMENT>(p); }
XPUD_KERNEL(256) attention_wide(const AttentionArguments p) { AttendWide<XPUD_ELEMENT>(p); }
