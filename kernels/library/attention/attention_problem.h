// The input of the attention kernels: sizes, strides and addresses, by value. A plain value.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "kernels/api/op_call.h"
#include "kernels/library/simd/attention_tile.h"

namespace xpud::kernels::attention {

// A [batch, head, row, column] tensor. Strides are in elements, 0 for broadcast axes.
struct HeadTensor {
  std::byte* data = nullptr;
  int64_t batch = 0, head = 0, row = 0, column = 0;
};

struct AttentionProblem {
  int64_t batch = 0, heads = 0, queries = 0, keys = 0, depth = 0, value_depth = 0;
  int64_t heads_per_key_head = 1;
  HeadTensor q, k, v, mask, out, logsumexp;  // mask and logsumexp: data is nullptr if absent
  double scale = 1;
  ops::DType dtype = ops::DType::kFloat32;
  ops::DType mask_dtype = ops::DType::kBool;
  bool causal = false;

  bool Empty() const { return batch == 0 || heads == 0 || queries == 0; }
  // Each head's queries are cut into tiles, in the same way for any number of workers.
  int64_t QueriesPerTile() const;
  int64_t Tiles() const;
  double Nanoseconds() const;  // estimated time on one core
  simd::AttentionTile TileAt(int64_t index) const;
};

// Reads a call of family kAttention. Returns Unimplemented if element types differ or are not floating.
absl::StatusOr<AttentionProblem> ReadAttention(const OpCall& call);

}  // namespace xpud::kernels::attention
