// The input of the attention kernels: sizes, strides and addresses, by value. Plain values.
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
  bool wide_logsumexp = false;     // f64
  simd::AttentionDropout dropout;  // element 0

  bool Empty() const { return batch == 0 || heads == 0 || queries == 0; }
  int64_t KeyHeads() const { return heads / heads_per_key_head; }
  // Each head's queries are cut into tiles, in the same way for any number of workers.
  int64_t QueriesPerTile() const;
  int64_t TilesOfHead() const;
  int64_t Tiles() const { return batch * heads * TilesOfHead(); }
  // The key head of a tile, counted over all batches.
  int64_t KeyHeadOf(int64_t tile) const { return tile / TilesOfHead() / heads_per_key_head; }
  double Nanoseconds(bool in_pairs) const;  // estimated time on one core
  simd::AttentionTile TileAt(int64_t index) const;
};

// A call of kAttentionBackward. Its keys are cut into parts if there are few heads, so that many workers can
// share the work; the sizes alone determine the parts.
struct AttentionGradientProblem : AttentionProblem {
  HeadTensor gradient, dq, dk, dv;

  int64_t Parts() const;
  int64_t Tasks() const { return batch * KeyHeads() * Parts(); }
  double GradientNanoseconds(bool in_pairs) const;
  // Workspace in elements of the sums' type: dq of each part, then delta of each part.
  int64_t GradientElements() const { return batch * heads * TilesOfHead() * QueriesPerTile() * depth; }
  int64_t DeltaElements() const { return batch * heads * TilesOfHead() * QueriesPerTile(); }
  size_t WorkspaceBytes() const;
  simd::AttentionGradientTile TaskAt(int64_t index, std::byte* workspace) const;
  simd::AttentionGradientSum SumAt(int64_t tile, std::byte* workspace) const;

 private:
  int64_t KeysPerPart() const;
};

// Read a call of kAttention or kTrainingAttention, and of kAttentionBackward. Return Unimplemented if element
// types differ or are not floating.
absl::StatusOr<AttentionProblem> ReadAttention(const OpCall& call);
absl::StatusOr<AttentionGradientProblem> ReadAttentionGradient(const OpCall& call);

}  // namespace xpud::kernels::attention
