// What the kernels of attention_*.cu take, by value. Shared by host and device code.
#pragma once

#include <stdint.h>

namespace xpud::gpu {

// Strides in elements of a [batch, head, row, column] tensor; 0 where it is broadcast.
struct HeadStrides {
  int64_t batch, head, row, column;
};

enum class MaskKind : int32_t { kNone = 0, kBool = 1, kAdded = 2 };

// out[b,h,i,:] = sum_j softmax_j(scale * q[b,h,i] . k[b,h',j] + mask[b,h,i,j]) v[b,h',j,:]. A row that may
// attend no key gives 0, and logsumexp 0. Groups x: of a head's queries (last first where causal, as they
// take longest), heads, batch.
struct AttentionArguments {
  // A module is compiled for a type, and the first one for a depth of 32, 64 or 128 too.
  // attention_mma_64, attention_mma_128 (queries of a group; scale above 0, no mask) and, in a module of its
  // own, attention_mma_masked_64 (a mask): 16-bit types by tensor cores. Depths up to the module's, multiples
  // of 8; rows of q, k and v at multiples of 16 bytes, unit column strides; out at multiples of 4 bytes;
  // sizes below 2^31.
  static constexpr int kMmaLanes = 128;
  // attention_tiled_many, attention_tiled_some and attention_tiled_few: f32, any mask or none, in modules for
  // depths of 32, 64 or 128. Depths that are multiples of 4; rows of q, k, v and out at multiples of 16
  // bytes, unit column strides; sizes below 2^31. attention_wgmma: as attention_mma_*, for sm_90 alone and
  // depths up to 64 or 128; queries of a group: 64 for each team of 128 lanes.
  static constexpr int WgmmaTeams(int depth) { return depth == 64 ? 3 : 2; }
  // attention_plain: any layout. `spread` lanes (a power of two) share a query, kPlainSlice of its depth
  // each; kPlainStep keys must fit in a tile of kPlainTileBytes.
  static constexpr int kPlainLanes = 128;
  static constexpr int kPlainSlice = 32;
  static constexpr int kPlainStep = 4;
  static constexpr int kPlainTileBytes = 16384;
  // attention_wide: any layout and depth; a group for a query; groups y: of kWideColumns of out.
  static constexpr int kWideLanes = 256;
  static constexpr int kWideColumns = 1024;
  // attention_merge<type>: after one of the first two has cut the keys, groups y of them; it also takes their
  // number (int32_t).
  static constexpr int kMergeLanes = 128;

  const void* q;
  const void* k;
  const void* v;
  const void* mask;  // or nullptr
  void* out;
  float* logsumexp;  // or nullptr
  float* parts;  // or nullptr: where keys are cut, [parts, batch, heads, queries, value_depth], and behind it
                 // [parts, batch, heads, queries]
  HeadStrides q_strides, k_strides, v_strides, mask_strides, out_strides, logsumexp_strides;
  int64_t batch, heads, queries, keys, depth, value_depth, heads_per_key_head;
  int64_t keys_per_part;
  double scale;
  MaskKind mask_kind;
  int32_t causal;
  int32_t spread;
};

}  // namespace xpud::gpu
