// The work units of scaled dot product attention on the CPU: some queries of one head with all of its keys
// (forward), some keys of one key head with all queries that share it (backward). Plain values.
#pragma once

#include <cstddef>
#include <cstdint>

#include "proto/ops/dtype.h"

namespace xpud::kernels::simd {

// Dropout of weights. Weight (query, key) is kept if the upper 24 bits of its 32-bit random word (op_table.h)
// are at least `threshold`, and multiplied by `factor`.
struct AttentionDropout {
  uint32_t threshold = 0;  // 0: everything is kept
  double factor = 1;
  uint64_t seed = 0, offset = 0;
  uint64_t element = 0;  // number of the element of query 0 and key 0; those of a query are adjacent
  uint64_t row = 0;      // elements between queries
};

// What changes scores and weights, for some queries of one head.
struct AttentionScores {
  ops::DType mask_dtype = ops::DType::kBool;
  const void* mask = nullptr;  // [queries, keys], or nullptr
  int64_t mask_row = 0, mask_column = 0;
  int64_t queries = 0;
  // If `causal`, query i may attend to keys 0 .. first_query + i.
  bool causal = false;
  int64_t first_query = 0;
  AttentionDropout dropout;
};

// out[i, :] = sum_j drop(softmax_j(scale * q[i] . k[j] + mask[i, j])) v[j, :], i in [0, queries), j in
// [0, keys). Rows that may attend to no key give 0, and logsumexp 0, as in PyTorch's fused attention on the
// CPU.
struct AttentionTile : AttentionScores {
  static constexpr int64_t kMaxQueries = 64;

  ops::DType dtype = ops::DType::kFloat32;
  int64_t keys = 0, depth = 0, value_depth = 0;
  const void* q = nullptr;    // [queries, depth]
  const void* k = nullptr;    // [keys, depth]
  const void* v = nullptr;    // [keys, value_depth]
  void* out = nullptr;        // [queries, value_depth]
  void* logsumexp = nullptr;  // [queries] f32, or f64 if `wide_logsumexp`, or nullptr
  bool wide_logsumexp = false;
  int64_t q_row = 0, q_column = 0, k_row = 0, k_column = 0, v_row = 0, v_column = 0;
  int64_t out_row = 0, out_column = 0, logsumexp_stride = 0;
  double scale = 1;
  void* scratch = nullptr;  // 64-byte aligned
  bool same_keys = false;   // and values, as the last tile with this scratch
};

// A matrix of each query head, and strides in elements.
struct HeadMatrix {
  void* data = nullptr;
  int64_t head = 0, row = 0, column = 0;
};

// Gradients by keys [first_key, first_key + keys) of one key head, and these keys' part of the gradients by
// queries. logsumexp is f64 if dtype is, otherwise f32.
struct AttentionGradientTile {
  ops::DType dtype = ops::DType::kFloat32;
  ops::DType mask_dtype = ops::DType::kBool;
  int64_t heads = 0;  // query heads that share the key head
  int64_t queries = 0, queries_per_tile = 0, first_key = 0, keys = 0, depth = 0, value_depth = 0;
  HeadMatrix q, out, gradient;  // [heads][queries, depth or value_depth]
  HeadMatrix mask, logsumexp;   // [heads][queries, keys] or no data; [heads][queries]
  HeadMatrix k, v, dk, dv;      // [keys, depth or value_depth], from first_key on
  double scale = 1;
  bool causal = false;
  AttentionDropout dropout;   // element: that of head 0, query 0, key 0
  uint64_t dropout_head = 0;  // elements between heads
  // In f64 if dtype is, otherwise f32; 64-byte aligned. dq, transposed and without scale:
  // [heads][tiles of queries][depth][queries_per_tile]; the tiles whose queries attend to none of these keys
  // are not written. delta: [heads][tiles of queries][queries_per_tile], the sums of gradient * out.
  void* dq = nullptr;
  void* delta = nullptr;
  void* scratch = nullptr;  // 64-byte aligned
};

// dq[i, :] = scale * the sum of some parts of a tile, in their order.
struct AttentionGradientSum {
  ops::DType dtype = ops::DType::kFloat32;
  int64_t queries = 0, queries_per_tile = 0, depth = 0;
  void* parts =
      nullptr;  // dq of AttentionGradientTile, for this tile of queries. The first part is overwritten.
  int64_t count = 0, step = 0;  // elements between parts
  void* dq = nullptr;
  int64_t row = 0, column = 0;
  double scale = 1;
};

}  // namespace xpud::kernels::simd
