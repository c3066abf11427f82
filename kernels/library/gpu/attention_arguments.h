// The arguments of the kernels of attention_*.cu, passed by value. Shared by host and device code.
#pragma once

#include <stdint.h>

namespace xpud::gpu {

// Strides in elements of a [batch, head, row, column] tensor; 0 for broadcast axes.
struct HeadStrides {
  int64_t batch, head, row, column;
};

enum class MaskKind : int32_t { kNone = 0, kBool = 1, kAdded = 2 };

// out[b,h,i,:] = sum_j softmax_j(scale * q[b,h,i] . k[b,h',j] + mask[b,h,i,j]) v[b,h',j,:]. A row that may
// attend to no key gives 0, and logsumexp 0. Groups x: of a head's queries (if causal the last first, as they
// take longest), heads, batch.
struct AttentionArguments {
  // Kernels of tiles require unit column strides, sizes below 2^31, rows of q, k and v at multiples of 16
  // bytes, and depths that are multiples of 16 bytes, up to that of their module. If `parts` is set, groups y
  // cut the keys.

  // 16-bit types on tensor cores; out at multiples of 4 bytes. The number in a name is the queries of a
  // group. In modules for depths of 32, 64 or 128: attention_mma_64, _128 and _cut_64 (scale above 0, no
  // mask), attention_mma_masked_64 and _masked_cut_64 (a mask). Only those with `cut` in their name cut the
  // keys. For sm_90 only, in modules for depths of 64 or 128: attention_wgmma, of 64 queries (scale above 0,
  // no mask).
  static constexpr int kMmaLanes = 128;

  // The same for long sequences, without cutting keys (at least one), with any number of groups:
  // attention_teams. Its groups go through all items, each of which is kTeams * kTeamRows queries of a head.
  // Strides are not negative; those of q, k and v are not 0 and below 2^38.
  static constexpr int kTeams = 2;        // of a group, which multiply
  static constexpr int kTeamLanes = 128;  // and as many more, which copy
  static constexpr int kTeamRows = 64;
  static constexpr int kTeamMapBytes = 3 * 128;  // of memory for each group: the tensor maps of q, k and v

  // f32, with or without a mask; out aligned as q. attention_tiled_many, attention_tiled_some,
  // attention_tiled_few, in modules for depths of 32, 64 or 128. The planner knows their sizes.

  // f32 and 16-bit types, with or without a mask, one query in a group: attention_one_32, _64, _128 for
  // depths up to that. out needs only a unit column stride.
  static constexpr int kOneLanes = 128;

  // After one of the above has cut the keys: attention_merge, which also takes the number of parts (int32_t).
  static constexpr int kMergeLanes = 128;
  static constexpr int kMaxParts = 512;

  // Any layout: attention_plain. `spread` lanes (a power of two) share a query, each with kPlainSlice of its
  // depth, and kPlainStep keys fit in a tile of kPlainTileBytes.
  static constexpr int kPlainLanes = 128;
  static constexpr int kPlainSlice = 32;
  static constexpr int kPlainStep = 4;
  static constexpr int kPlainTileBytes = 16384;

  // Any layout and depth: attention_wide, with one query in a group; groups y: of kWideColumns of out.
  static constexpr int kWideLanes = 256;
  static constexpr int kWideColumns = 1024;

  const void* q;
  const void* k;
  const void* v;
  const void* mask;  // or nullptr
  void* out;
  float* logsumexp;  // or nullptr
  float* parts;  // if keys are cut: [parts, batch, heads, queries, value_depth], followed by [parts, batch,
                 // heads, queries]; else nullptr
  void* maps;    // for the kernels of teams: kTeamMapBytes for each group, at a multiple of 128
  HeadStrides q_strides, k_strides, v_strides, mask_strides, out_strides, logsumexp_strides;
  int64_t batch, heads, queries, keys, depth, value_depth, heads_per_key_head;
  int64_t keys_per_part;
  double scale;
  MaskKind mask_kind;
  int32_t causal;
  int32_t spread;
  int32_t wide_logsumexp;  // f64; only attention_plain and attention_wide store it so
  // Dropout, if `threshold` is not 0. The weight of element i = ((b heads + h) queries + row) keys + key is
  // kept if the upper 24 bits of its Philox word (proto/ops/op_table.h) are at least `threshold`, and
  // multiplied by `factor`. Kernels with dropout: attention_plain, attention_wide, attention_mma_dropout_64
  // and attention_mma_masked_dropout_64.
  uint32_t threshold;
  uint64_t seed, offset;
  double factor;
};

// Gradients. q, k, v, mask, out and logsumexp are those of forward; logsumexp is f64 for f64, otherwise f32.
// First attention_delta, then the kernels of keys and of queries. dk and dv sum over the query heads of a key
// head.
struct AttentionGradientArguments : AttentionArguments {
  // attention_delta: groups x of all queries; a warp takes one.
  static constexpr int kDeltaLanes = 128;
  static constexpr int kDeltaRows = kDeltaLanes / 32;

  // Any layout, type and depth: attention_gradient_keys (groups x: tiles of keys, key heads, batch) and
  // attention_gradient_queries (tiles of queries, heads, batch). A tile has kPlainSide rows (f64: half).
  // Groups y: of kPlainColumns columns of gradients.
  static constexpr int kPlainLanes = 256;
  static constexpr int kPlainSide = 64;
  static constexpr int kPlainColumns = 64;

  // 16-bit types on tensor cores, rows of q, k, v and gradient as for tiles, those of dq, dk and dv at
  // multiples of 4 bytes, in modules for depths of 32, 64 or 128: attention_mma_keys and
  // attention_mma_queries, with groups as above, of kMmaRows keys or queries. With a mask or dropout:
  // attention_mma_keys_general and attention_mma_queries_general. They need `base`.
  static constexpr int kMmaLanes = 128;
  static constexpr int kMmaRows = 64;

  // The same for long sequences on sm_90 (at least one key and query, no mask or dropout), in modules for
  // depths of 64 or 128: attention_teams_keys and attention_teams_queries, with any number of groups, as
  // attention_teams. The strides of `gradient` are as those of q.
  static constexpr int kTeamMapBytes = 4 * 128;  // of memory for each group: four tensor maps

  const void* gradient;
  void *dq, *dk, *dv;
  void* delta;  // workspace: [batch, heads, queries], of logsumexp's type
  float* base;  // workspace or nullptr: likewise, logsumexp in units of log 2
  HeadStrides gradient_strides, dq_strides, dk_strides, dv_strides;
};

}  // namespace xpud::gpu
