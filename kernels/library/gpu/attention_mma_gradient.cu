// Gradients of attention of 16-bit types on tensor cores, without storing scores: FlashAttention-2's scheme
// (Dao, 2023) with mma.m16n8k16. Scores are computed in both kernels, so that each gradient is summed by one
// group in a fixed order. Compiled to PTX once for each XPUD_ELEMENT and XPUD_DEPTH.
//
// One kernel takes keys: with transposed scores, whose rows are keys, weights and slopes are left factors of
// the gradients by values and keys. The other takes queries: slopes are left factors of their gradients.
#include "kernels/library/gpu/attention_mma.h"

#include "kernels/library/gpu/attention_mma_dropout.h"

namespace xpud::gpu {

using Arguments = AttentionGradientArguments;

constexpr int kRows = Arguments::kMmaRows;      // keys, or queries, of a group: 16 for each warp
constexpr int kOthers = kDepth > 64 ? 32 : 64;  // queries, or keys, of a tile
constexpr int kRowElements = kRows * kDepth, kOtherElements = kOthers * kDepth;
constexpr bool kKeeps = kDepth <= 64;  // left factors that are used again stay in registers
static_assert(kRows == kWarps * 16);

// Begins to copy a word of f32, or writes 0.
XPUD_DEVICE void CopyWord(uint32_t to, const float* from, bool valid) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from), "r"(valid ? 4 : 0)
               : "memory");
}

// What weights and slopes of a tile need to know.
struct Scores {
  int64_t b, h;
  float factor;  // of products, in units of log 2
};

// Returns the score, in units of log 2, after applying the mask.
XPUD_DEVICE float Masked(const Arguments& p, const Scores& s, int row, int key, float product) {
  const float score = product * s.factor;
  if (p.mask_kind == MaskKind::kNone) return score;
  const int64_t place = s.b * p.mask_strides.batch + s.h * p.mask_strides.head +
                        Least<int64_t>(row, p.queries - 1) * p.mask_strides.row +
                        Least<int64_t>(key, p.keys - 1) * p.mask_strides.column;
  if (p.mask_kind == MaskKind::kAdded) return score + MaskUnits(Load(static_cast<const T*>(p.mask)[place]));
  return static_cast<const uint8_t*>(p.mask)[place] != 0 ? score : -__builtin_inff();
}

// Replaces the product by the weight after dropout, and the product of gradient and value by the slope.
template <bool kGeneral>
XPUD_DEVICE void Weigh(const Arguments& p, const Scores& s, int row, int key, float base, float delta,
                       float factor, bool hidden, float& product, float& slope) {
  float weight;
  if constexpr (kGeneral)
    weight = Exp2(Masked(p, s, row, key, product) - base);
  else
    weight = Exp2(__builtin_fmaf(product, s.factor, -base));
  if (hidden) weight = 0;
  if constexpr (kGeneral) {
    product = weight * factor;
    slope = weight * (slope * factor - delta);
  } else {
    product = weight;
    slope = weight * (slope - delta);
  }
}

// Stores the lane's pairs of two rows.
XPUD_DEVICE void StoreRows(void* data, const HeadStrides& s, int64_t b, int64_t h, int row, int64_t size,
                           int depth, float factor, const float (&sum)[kDepth / 8][4]) {
  const int lane = Lane() % 4;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int64_t at = row + half * 8;
    if (at >= size) continue;
    T* const to = static_cast<T*>(data) + b * s.batch + h * s.head + at * s.row + lane * 2;
#pragma unroll
    for (int d = 0; d < kDepth / 8; ++d)
      if (d * 8 < depth)
        *reinterpret_cast<uint32_t*>(to + d * 8) =
            Pair<T>(sum[d][half * 2] * factor, sum[d][half * 2 + 1] * factor);
  }
}

// ---- keys ----

struct KeysMemory {
  T k[kRowElements], v[kRowElements];
  struct Stage {
    T q[kOtherElements], gradient[kOtherElements];
    float base[kOthers], delta[kOthers];
  } stages[2];
};

XPUD_DEVICE void BeginQueries(const Arguments& p, KeysMemory::Stage& stage, int64_t b, int64_t h, int first) {
  BeginTile<kOthers>(stage.q, HeadOf<T>(p.q, p.q_strides, b, h), p.q_strides.row, first, p.queries,
                     static_cast<int>(p.depth));
  BeginTile<kOthers>(stage.gradient, HeadOf<T>(p.gradient, p.gradient_strides, b, h), p.gradient_strides.row,
                     first, p.queries, static_cast<int>(p.value_depth));
  static_assert(2 * kOthers <= kWarps * 32);
  const int i = Lane() % kOthers;
  if (Lane() >= 2 * kOthers) return;
  const bool is_base = Lane() < kOthers, valid = first + i < p.queries;
  const float* const from =
      (is_base ? p.base : static_cast<const float*>(p.delta)) + (b * p.heads + h) * p.queries;
  CopyWord(SharedAddress((is_base ? stage.base : stage.delta) + i), valid ? from + first + i : from, valid);
}

// sum += the tile's rows of left factors [warp * 16, ...) times its columns. `kept` are these factors, or
// they are read from `left`.
template <int kCount>
XPUD_DEVICE void AddProducts(const Fragment (&kept)[kKeeps ? kDepth / 16 : 1], const T* left, const T* right,
                             float (&sum)[kCount / 8][4]) {
#pragma unroll
  for (int d = 0; d < kDepth / 16; ++d) {
    const Fragment a = kKeeps ? kept[kKeeps ? d : 0] : LoadLeft(left, Lane() / 32 * 16, d);
#pragma unroll
    for (int n = 0; n < kCount / 16; ++n) {
      const Fragment f = LoadRight(right, n * 16, d);
      MultiplyAdd(sum[2 * n], a, f.x[0], f.x[1]);
      MultiplyAdd(sum[2 * n + 1], a, f.x[2], f.x[3]);
    }
  }
}

// sum += left . rows, over the tile's rows.
template <int kCount>
XPUD_DEVICE void AddRows(const float (&left)[kCount / 8][4], const T* rows, float (&sum)[kDepth / 8][4]) {
#pragma unroll
  for (int n = 0; n < kCount / 16; ++n) {
    const Fragment a = LeftOf(left[2 * n], left[2 * n + 1]);
#pragma unroll
    for (int d = 0; d < kDepth / 16; ++d) {
      const Fragment f = LoadRightRows(rows, n * 16, d);
      MultiplyAdd(sum[2 * d], a, f.x[0], f.x[1]);
      MultiplyAdd(sum[2 * d + 1], a, f.x[2], f.x[3]);
    }
  }
}

XPUD_DEVICE void KeepLeft(const T* tile, Fragment (&kept)[kKeeps ? kDepth / 16 : 1]) {
  if constexpr (kKeeps) {
#pragma unroll
    for (int d = 0; d < kDepth / 16; ++d) kept[d] = LoadLeft(tile, Lane() / 32 * 16, d);
  }
}

// Weights and slopes of transposed scores: rows are keys, columns are queries from `query` on.
template <bool kGeneral>
XPUD_DEVICE void WeighKeys(const Arguments& p, const Scores& s, const KeysMemory::Stage& stage, int query,
                           int key, float (&weight)[kOthers / 8][4], float (&slope)[kOthers / 8][4]) {
  const int lane = Lane() % 32, warp_key = key + Lane() / 32 * 16;
  const bool ends = query + kOthers > p.queries || (p.causal != 0 && query < key + kRows - 1);
#pragma unroll
  for (int n = 0; n < kOthers / 8; ++n) {
    Factors factors = {{1, 1, 1, 1}};
    if constexpr (kGeneral)
      if (p.threshold != 0) factors = FactorsOfKeys(p, s.b, s.h, query + n * 8, warp_key);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int column = n * 8 + lane % 4 * 2 + i % 2, row = query + column,
                own = warp_key + lane / 4 + i / 2 * 8;
      const bool hidden = ends && (row >= p.queries || (p.causal != 0 && own > row));
      Weigh<kGeneral>(p, s, row, own, stage.base[column], stage.delta[column], factors.x[i], hidden,
                      weight[n][i], slope[n][i]);
    }
  }
}

template <bool kGeneral>
XPUD_DEVICE void GradientOfKeys(const Arguments& p, KeysMemory& memory) {
  const int64_t groups = (p.keys + kRows - 1) / kRows, key_heads = Quotient(p.heads, p.heads_per_key_head);
  const auto [group, kh, b] = PositionOf(GroupX(), groups, key_heads);
  const int key = static_cast<int>(group * kRows);
  const int depth = static_cast<int>(p.depth), value_depth = static_cast<int>(p.value_depth);
  // Tiles of queries of each head; if causal, from the first that may attend to these keys.
  const int first = p.causal != 0 ? key / kOthers * kOthers : 0;
  const int tiles = first < p.queries ? static_cast<int>((p.queries - first + kOthers - 1) / kOthers) : 0;
  const int64_t steps = tiles * p.heads_per_key_head, head = kh * p.heads_per_key_head;

  BeginTile<kRows>(memory.k, HeadOf<T>(p.k, p.k_strides, b, kh), p.k_strides.row, key, p.keys, depth);
  BeginTile<kRows>(memory.v, HeadOf<T>(p.v, p.v_strides, b, kh), p.v_strides.row, key, p.keys, value_depth);
  if (steps > 0) BeginQueries(p, memory.stages[0], b, head, first);
  CommitCopies();
  WaitForCopies<0>();
  Synchronize();
  Fragment kept_k[kKeeps ? kDepth / 16 : 1] = {}, kept_v[kKeeps ? kDepth / 16 : 1] = {};
  KeepLeft(memory.k, kept_k);
  KeepLeft(memory.v, kept_v);

  float dk[kDepth / 8][4] = {}, dv[kDepth / 8][4] = {};
  for (int64_t step = 0; step < steps; ++step) {
    CommitCopies();
    WaitForCopies<0>();
    Synchronize();
    const KeysMemory::Stage& stage = memory.stages[step % 2];
    if (step + 1 < steps)
      BeginQueries(p, memory.stages[(step + 1) % 2], b, head + (step + 1) / tiles,
                   first + static_cast<int>((step + 1) % tiles) * kOthers);
    const int query = first + static_cast<int>(step % tiles) * kOthers;
    const Scores s = {b, head + step / tiles, static_cast<float>(p.scale) * kLog2E};
    float weight[kOthers / 8][4] = {}, slope[kOthers / 8][4] = {};
    AddProducts<kOthers>(kept_k, memory.k, stage.q, weight);
    AddProducts<kOthers>(kept_v, memory.v, stage.gradient, slope);
    WeighKeys<kGeneral>(p, s, stage, query, key, weight, slope);
    AddRows<kOthers>(weight, stage.gradient, dv);
    AddRows<kOthers>(slope, stage.q, dk);
  }
  const int row = key + Lane() / 32 * 16 + Lane() % 32 / 4;
  StoreRows(p.dk, p.dk_strides, b, kh, row, p.keys, depth, static_cast<float>(p.scale), dk);
  StoreRows(p.dv, p.dv_strides, b, kh, row, p.keys, value_depth, 1, dv);
}

// ---- queries ----

struct QueriesMemory {
  struct Stage {
    T k[kOtherElements], v[kOtherElements];
  };
  union {
    Stage stages[2];
    struct {
      T q[kRowElements], gradient[kRowElements];
    } own;  // until they are in registers
  };
};

template <bool kGeneral>
XPUD_DEVICE void WeighQueries(const Arguments& p, const Scores& s, const float (&base)[2],
                              const float (&delta)[2], int row, int key, bool ends,
                              float (&weight)[kOthers / 8][4], float (&slope)[kOthers / 8][4]) {
  const int lane = Lane() % 32;
#pragma unroll
  for (int n = 0; n < kOthers / 8; ++n) {
    Factors factors = {{1, 1, 1, 1}};
    if constexpr (kGeneral)
      if (p.threshold != 0) factors = FactorsOfQueries(p, s.b, s.h, row, key + n * 8);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int own = row + i / 2 * 8, at = key + n * 8 + lane % 4 * 2 + i % 2;
      const bool hidden = ends && (at >= p.keys || (p.causal != 0 && at > own));
      Weigh<kGeneral>(p, s, own, at, base[i / 2], delta[i / 2], factors.x[i], hidden, weight[n][i],
                      slope[n][i]);
    }
  }
}

XPUD_DEVICE void BeginKeys(const Arguments& p, QueriesMemory::Stage& stage, int64_t b, int64_t kh,
                           int first) {
  BeginTile<kOthers>(stage.k, HeadOf<T>(p.k, p.k_strides, b, kh), p.k_strides.row, first, p.keys,
                     static_cast<int>(p.depth));
  BeginTile<kOthers>(stage.v, HeadOf<T>(p.v, p.v_strides, b, kh), p.v_strides.row, first, p.keys,
                     static_cast<int>(p.value_depth));
}

template <bool kGeneral>
XPUD_DEVICE void GradientOfQueries(const Arguments& p, QueriesMemory& memory) {
  const int64_t groups = (p.queries + kRows - 1) / kRows;
  const auto [group, h, b] = PositionOf(GroupX(), groups, p.heads);
  const int64_t kh = Quotient(h, p.heads_per_key_head);
  const int query = static_cast<int>((p.causal != 0 ? groups - 1 - group : group) * kRows);
  const int keys = static_cast<int>(p.causal != 0 ? Least<int64_t>(p.keys, query + kRows) : p.keys);
  const int row = query + Lane() / 32 * 16 + Lane() % 32 / 4;

  BeginTile<kRows>(memory.own.q, HeadOf<T>(p.q, p.q_strides, b, h), p.q_strides.row, query, p.queries,
                   static_cast<int>(p.depth));
  BeginTile<kRows>(memory.own.gradient, HeadOf<T>(p.gradient, p.gradient_strides, b, h),
                   p.gradient_strides.row, query, p.queries, static_cast<int>(p.value_depth));
  CommitCopies();
  float base[2], delta[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int64_t at = (b * p.heads + h) * p.queries + row + half * 8;
    const bool inside = row + half * 8 < p.queries;
    base[half] = inside ? p.base[at] : 0.0f;
    delta[half] = inside ? static_cast<const float*>(p.delta)[at] : 0.0f;
  }
  WaitForCopies<0>();
  Synchronize();
  Fragment q[kDepth / 16], gradient[kDepth / 16];
#pragma unroll
  for (int d = 0; d < kDepth / 16; ++d) {
    q[d] = LoadLeft(memory.own.q, Lane() / 32 * 16, d);
    gradient[d] = LoadLeft(memory.own.gradient, Lane() / 32 * 16, d);
  }
  Synchronize();

  float dq[kDepth / 8][4] = {};
  const Scores s = {b, h, static_cast<float>(p.scale) * kLog2E};
  if (keys > 0) BeginKeys(p, memory.stages[0], b, kh, 0);
  int side = 0;
  for (int key = 0; key < keys; key += kOthers, side ^= 1) {
    CommitCopies();
    WaitForCopies<0>();
    Synchronize();
    const QueriesMemory::Stage& stage = memory.stages[side];
    if (key + kOthers < keys) BeginKeys(p, memory.stages[side ^ 1], b, kh, key + kOthers);
    float weight[kOthers / 8][4] = {}, slope[kOthers / 8][4] = {};
#pragma unroll
    for (int d = 0; d < kDepth / 16; ++d)
#pragma unroll
      for (int n = 0; n < kOthers / 16; ++n) {
        const Fragment by_key = LoadRight(stage.k, n * 16, d), by_value = LoadRight(stage.v, n * 16, d);
        MultiplyAdd(weight[2 * n], q[d], by_key.x[0], by_key.x[1]);
        MultiplyAdd(weight[2 * n + 1], q[d], by_key.x[2], by_key.x[3]);
        MultiplyAdd(slope[2 * n], gradient[d], by_value.x[0], by_value.x[1]);
        MultiplyAdd(slope[2 * n + 1], gradient[d], by_value.x[2], by_value.x[3]);
      }
    const bool ends = key + kOthers > p.keys || (p.causal != 0 && key + kOthers - 1 > query);
    WeighQueries<kGeneral>(p, s, base, delta, row, key, ends, weight, slope);
    AddRows<kOthers>(slope, stage.k, dq);
  }
  StoreRows(p.dq, p.dq_strides, b, h, row, p.queries, static_cast<int>(p.depth), static_cast<float>(p.scale),
            dq);
}

}  // namespace xpud::gpu

using namespace xpud::gpu;

extern __attribute__((shared, aligned(128))) char attention_memory[];

// The general kernels have masks and dropout.
#define XPUD_GRADIENT(name, general)                                                       \
  XPUD_KERNEL_OF(128, 2) attention_mma_keys##name(const AttentionGradientArguments p) {    \
    GradientOfKeys<general>(p, *reinterpret_cast<KeysMemory*>(attention_memory));          \
  }                                                                                        \
  XPUD_LOCAL_MEMORY(attention_mma_keys##name, sizeof(KeysMemory));                         \
  XPUD_KERNEL_OF(128, 2) attention_mma_queries##name(const AttentionGradientArguments p) { \
    GradientOfQueries<general>(p, *reinterpret_cast<QueriesMemory*>(attention_memory));    \
  }                                                                                        \
  XPUD_LOCAL_MEMORY(attention_mma_queries##name, sizeof(QueriesMemory))
XPUD_GRADIENT(, false);
XPUD_GRADIENT(_general, true);
