// Gradients of attention of any layout, type and depth by multiply-add, without storing scores. Compiled to
// PTX once for each XPUD_ELEMENT. With p = softmax(scores), a factor f for dropout, dp = gradient v':
//   dv = (p f)' gradient,  ds = p (dp f - delta),  dq = scale ds k,  dk = scale ds' q
// The scores of a tile are computed again in each kernel, so that each gradient is summed by one group in a
// fixed order.
#include <stdbool.h>

#pragma clang force_cuda_host_device begin
namespace {
#include "kernels/compiler/math.c"
}
#pragma clang force_cuda_host_device end

#include "kernels/library/gpu/attention_scalar.h"

namespace xpud::gpu {

using T = XPUD_ELEMENT;
using W = Wide<T>::type;
using Arguments = AttentionGradientArguments;

constexpr int kLanes = Arguments::kPlainLanes;
constexpr int kSide =
    Arguments::kPlainSide / (sizeof(W) == sizeof(double) ? 2 : 1);  // queries, keys of a tile
constexpr int kGrid = 16;              // a tile's scores are shared by kGrid x kGrid lanes
constexpr int kBlock = kSide / kGrid;  // scores of a lane in each direction
constexpr int kChunk = 16;             // columns that are multiplied at a time
constexpr int kStrip = 32;             // columns of gradients that are added at a time
constexpr int kStrips = Arguments::kPlainColumns / kStrip;
constexpr int kOwn = kStrip / kGrid;  // columns of a lane in a strip
constexpr int kPitch = kSide + 1;
static_assert(kLanes == kGrid * kGrid);
static_assert(kSide * kStrip <= 2 * kSide * (kChunk + 1));

struct Shared {
  W weights[kSide * kPitch], slopes[kSide * kPitch];  // [query][key], after dropout; gradients of scores
  W operands[2 * kSide * (kChunk + 1)];               // two chunks, or one strip
};

// A matrix of a head. Rows from `size` on, and columns from `columns` on, are read as 0.
struct Matrix {
  const T* data;
  int64_t row, column, size, columns;
};

XPUD_DEVICE Matrix MatrixOf(const void* data, const HeadStrides& s, int64_t b, int64_t h, int64_t size,
                            int64_t columns) {
  return {HeadOf<T>(data, s, b, h), s.row, s.column, size, columns};
}

// Reads kSide rows, from `first` on, of kCount columns, from `column` on.
template <int kCount, int kStep>
XPUD_DEVICE void ReadTile(const Matrix& m, int64_t first, int64_t column, W* to) {
  static_assert(kSide * kCount % kLanes == 0);
#pragma unroll
  for (int step = 0; step < kSide * kCount / kLanes; ++step) {
    const int i = step * kLanes + Lane(), r = i / kCount, c = i % kCount;
    const bool inside = first + r < m.size && column + c < m.columns;
    to[r * kStep + c] = inside ? Load(m.data[(first + r) * m.row + (column + c) * m.column]) : W(0);
  }
}

// Adds a[first_a + ..., :] . b[first_b + ..., :] for the lane's block.
XPUD_DEVICE void AddProducts(const Matrix& a, int64_t first_a, const Matrix& b, int64_t first_b, W* memory,
                             W (&sum)[kBlock][kBlock]) {
  constexpr int kStep = kChunk + 1;
  W *const left = memory, *const right = memory + kSide * kStep;
  const int y = Lane() / kGrid, x = Lane() % kGrid;
  for (int64_t column = 0; column < a.columns; column += kChunk) {
    ReadTile<kChunk, kStep>(a, first_a, column, left);
    ReadTile<kChunk, kStep>(b, first_b, column, right);
    Synchronize();
#pragma unroll 8
    for (int c = 0; c < kChunk; ++c) {
      W row[kBlock], other[kBlock];
#pragma unroll
      for (int i = 0; i < kBlock; ++i) {
        row[i] = left[(y + i * kGrid) * kStep + c];
        other[i] = right[(x + i * kGrid) * kStep + c];
      }
#pragma unroll
      for (int i = 0; i < kBlock; ++i)
#pragma unroll
        for (int j = 0; j < kBlock; ++j) sum[i][j] = __builtin_elementwise_fma(row[i], other[j], sum[i][j]);
    }
    Synchronize();
  }
}

// The head of a tile of scores.
struct Place {
  int64_t b, h;
  Matrix q, gradient, k, v;
};
XPUD_DEVICE Place PlaceOf(const Arguments& p, int64_t b, int64_t h) {
  const int64_t kh = Quotient(h, p.heads_per_key_head);
  return {b,
          h,
          MatrixOf(p.q, p.q_strides, b, h, p.queries, p.depth),
          MatrixOf(p.gradient, p.gradient_strides, b, h, p.queries, p.value_depth),
          MatrixOf(p.k, p.k_strides, b, kh, p.keys, p.depth),
          MatrixOf(p.v, p.v_strides, b, kh, p.keys, p.value_depth)};
}

XPUD_DEVICE const W* LogsumexpOf(const Arguments& p, int64_t b, int64_t h) {
  return HeadOf<W>(p.logsumexp, p.logsumexp_strides, b, h);
}

// Sets weights and slopes of a tile. REQUIRES: all lanes; they may read the tile when it returns.
XPUD_DEVICE void SetScores(const Arguments& p, const Place& at, int64_t query, int64_t key, Shared& memory) {
  W score[kBlock][kBlock] = {}, slope[kBlock][kBlock] = {};
  AddProducts(at.q, query, at.k, key, memory.operands, score);
  AddProducts(at.gradient, query, at.v, key, memory.operands, slope);
  const W* const logsumexp = LogsumexpOf(p, at.b, at.h);
  const W* const delta = static_cast<const W*>(p.delta) + (at.b * p.heads + at.h) * p.queries;
#pragma unroll
  for (int i = 0; i < kBlock; ++i) {
    const int y = Lane() / kGrid + i * kGrid;
    const int64_t row = query + y;
    const bool inside = row < p.queries;
    const W base = inside ? logsumexp[row * p.logsumexp_strides.row] : W(0),
            below = inside ? delta[row] : W(0);
#pragma unroll
    for (int j = 0; j < kBlock; ++j) {
      const int x = Lane() % kGrid + j * kGrid;
      const int64_t column = key + x;
      W weight = 0, factor = 1;
      if (inside && column < p.keys) {
        weight = Exp(Masked<T>(p, at.b, at.h, row, column, score[i][j] * static_cast<W>(p.scale)) - base);
        factor = FactorOf<W>(p, ElementOf(p, at.b, at.h, row, column));
      }
      memory.weights[y * kPitch + x] = weight * factor;
      memory.slopes[y * kPitch + x] = weight * (slope[i][j] * factor - below);
    }
  }
  Synchronize();
}

// Adds scores' . rows for the lane's rows of keys (kOfKeys), or scores . rows for its rows of queries, and
// for the columns of a strip. REQUIRES: all lanes.
template <bool kOfKeys>
XPUD_DEVICE void AddStrip(const W* scores, const Matrix& rows, int64_t first, int64_t column, W* memory,
                          W (&sum)[kBlock][kOwn]) {
  ReadTile<kStrip, kStrip>(rows, first, column, memory);
  Synchronize();
  const int y = Lane() / kGrid, x = Lane() % kGrid;
#pragma unroll 4
  for (int r = 0; r < kSide; ++r) {
    W score[kBlock], other[kOwn];
#pragma unroll
    for (int i = 0; i < kBlock; ++i)
      score[i] = kOfKeys ? scores[r * kPitch + y + i * kGrid] : scores[(y + i * kGrid) * kPitch + r];
#pragma unroll
    for (int c = 0; c < kOwn; ++c) other[c] = memory[r * kStrip + x + c * kGrid];
#pragma unroll
    for (int i = 0; i < kBlock; ++i)
#pragma unroll
      for (int c = 0; c < kOwn; ++c) sum[i][c] = __builtin_elementwise_fma(score[i], other[c], sum[i][c]);
  }
  Synchronize();
}

// Stores the lane's sums of a strip as rows of a gradient.
XPUD_DEVICE void StoreStrip(void* data, const HeadStrides& s, int64_t b, int64_t h, int64_t first,
                            int64_t size, int64_t column, int64_t columns, W factor,
                            const W (&sum)[kBlock][kOwn]) {
  T* const to = static_cast<T*>(data) + b * s.batch + h * s.head;
#pragma unroll
  for (int i = 0; i < kBlock; ++i)
#pragma unroll
    for (int c = 0; c < kOwn; ++c) {
      const int64_t row = first + Lane() / kGrid + i * kGrid, at = column + Lane() % kGrid + c * kGrid;
      if (row < size && at < columns) Store(to[row * s.row + at * s.column], sum[i][c] * factor);
    }
}

XPUD_DEVICE void GradientOfKeys(const Arguments& p) {
  XPUD_SHARED Shared memory;
  const int64_t tiles = (p.keys + kSide - 1) / kSide, key_heads = Quotient(p.heads, p.heads_per_key_head);
  const auto [tile, kh, b] = PositionOf(GroupX(), tiles, key_heads);
  const int64_t key = tile * kSide;
  const int64_t column = GroupY() * Arguments::kPlainColumns;
  W dk[kStrips][kBlock][kOwn] = {}, dv[kStrips][kBlock][kOwn] = {};
  for (int64_t h = kh * p.heads_per_key_head; h < (kh + 1) * p.heads_per_key_head; ++h) {
    const Place at = PlaceOf(p, b, h);
    // `key` is also the first query that may attend to it.
    for (int64_t query = p.causal != 0 ? key : 0; query < p.queries; query += kSide) {
      SetScores(p, at, query, key, memory);
#pragma unroll
      for (int s = 0; s < kStrips; ++s) {
        AddStrip<true>(memory.weights, at.gradient, query, column + s * kStrip, memory.operands, dv[s]);
        AddStrip<true>(memory.slopes, at.q, query, column + s * kStrip, memory.operands, dk[s]);
      }
    }
  }
#pragma unroll
  for (int s = 0; s < kStrips; ++s) {
    StoreStrip(p.dk, p.dk_strides, b, kh, key, p.keys, column + s * kStrip, p.depth, static_cast<W>(p.scale),
               dk[s]);
    StoreStrip(p.dv, p.dv_strides, b, kh, key, p.keys, column + s * kStrip, p.value_depth, W(1), dv[s]);
  }
}

XPUD_DEVICE void GradientOfQueries(const Arguments& p) {
  XPUD_SHARED Shared memory;
  const int64_t tiles = (p.queries + kSide - 1) / kSide;
  const auto [tile, h, b] = PositionOf(GroupX(), tiles, p.heads);
  const int64_t query = tile * kSide;
  const int64_t column = GroupY() * Arguments::kPlainColumns;
  const int64_t keys = p.causal != 0 ? Least(p.keys, query + kSide) : p.keys;
  const Place at = PlaceOf(p, b, h);
  W dq[kStrips][kBlock][kOwn] = {};
  for (int64_t key = 0; key < keys; key += kSide) {
    SetScores(p, at, query, key, memory);
#pragma unroll
    for (int s = 0; s < kStrips; ++s)
      AddStrip<false>(memory.slopes, at.k, key, column + s * kStrip, memory.operands, dq[s]);
  }
#pragma unroll
  for (int s = 0; s < kStrips; ++s)
    StoreStrip(p.dq, p.dq_strides, b, h, query, p.queries, column + s * kStrip, p.depth,
               static_cast<W>(p.scale), dq[s]);
}

// A warp takes one query.
XPUD_DEVICE void Delta(const Arguments& p) {
  const int64_t rows = p.batch * p.heads * p.queries, row = GroupX() * Arguments::kDeltaRows + Lane() / 32;
  if (row >= rows) return;
  const auto [s, h, b] = PositionOf(row, p.queries, p.heads);
  const T* const gradient = HeadOf<T>(p.gradient, p.gradient_strides, b, h) + s * p.gradient_strides.row;
  const T* const out = HeadOf<T>(p.out, p.out_strides, b, h) + s * p.out_strides.row;
  W sum = 0;
  for (int64_t e = Lane() % 32; e < p.value_depth; e += 32)
    sum = __builtin_elementwise_fma(W(Load(gradient[e * p.gradient_strides.column])),
                                    W(Load(out[e * p.out_strides.column])), sum);
  for (int lanes = 1; lanes < 32; lanes *= 2) sum += Across(sum, lanes);
  if (Lane() % 32 != 0) return;
  static_cast<W*>(p.delta)[row] = sum;
  if (p.base != nullptr)
    p.base[row] = static_cast<float>(LogsumexpOf(p, b, h)[s * p.logsumexp_strides.row]) * 1.4426950408889634f;
}

}  // namespace xpud::gpu

using namespace xpud::gpu;

// The second number is the minimum of groups for which a multiprocessor has room: it limits registers.
XPUD_KERNEL(128) attention_delta(const AttentionGradientArguments p) { Delta(p); }
XPUD_KERNEL_OF(256, 2) attention_gradient_keys(const AttentionGradientArguments p) { GradientOfKeys(p); }
XPUD_KERNEL_OF(256, 2) attention_gradient_queries(const AttentionGradientArguments p) {
  GradientOfQueries(p);
}
