// One tile of scaled dot product attention: some queries of one head with all of its keys.
#pragma once

#include <cstddef>
#include <cstdint>

#include "proto/ops/dtype.h"

namespace xpud::kernels::simd {

// out[i, :] = sum_j softmax_j(scale * q[i] . k[j] + mask[i, j]) v[j, :], i in [0, queries), j in [0, keys).
// Rows that may attend to no key give 0, and logsumexp 0, as in PyTorch's fused attention on the CPU.
struct AttentionTile {
  static constexpr int64_t kMaxQueries = 64;

  ops::DType dtype = ops::DType::kFloat32;
  ops::DType mask_dtype = ops::DType::kBool;
  int64_t queries = 0, keys = 0, depth = 0, value_depth = 0;
  const void* q = nullptr;     // [queries, depth]
  const void* k = nullptr;     // [keys, depth]
  const void* v = nullptr;     // [keys, value_depth]
  const void* mask = nullptr;  // [queries, keys], or nullptr
  void* out = nullptr;         // [queries, value_depth]
  float* logsumexp = nullptr;  // [queries], or nullptr
  int64_t q_row = 0, q_column = 0, k_row = 0, k_column = 0, v_row = 0, v_column = 0;
  int64_t mask_row = 0, mask_column = 0, out_row = 0, out_column = 0, logsumexp_stride = 0;
  double scale = 1;
  // If `causal`, query i may attend to keys 0 .. first_query + i.
  bool causal = false;
  int64_t first_query = 0;
  void* scratch = nullptr;  // 64-byte aligned
};

}  // namespace xpud::kernels::simd
