// Attention of 16-bit types on Hopper's tensor cores, without storing scores. Four warps multiply with wgmma;
// the next product runs while the weights of the last one are computed (FlashAttention-3's overlap; Shah et
// al., 2024). Compiled to PTX once for each XPUD_ELEMENT and XPUD_DEPTH; no masks.
#include "kernels/library/gpu/attention_arguments.h"
#include "kernels/library/gpu/attention_device.h"
#include "kernels/library/gpu/attention_wgmma.h"
#include "kernels/library/gpu/device.h"

namespace xpud::gpu {

using T = XPUD_ELEMENT;
constexpr int kDepth = XPUD_DEPTH;
constexpr int kLanes = AttentionArguments::kMmaLanes;
constexpr int kRows = 64;
constexpr int kKeys = 64;  // of a tile
constexpr int kSpan = 64;  // columns of a slab: 128 bytes, the width of the swizzle
constexpr int kSlabs = kDepth / kSpan;
constexpr int kSlabBytes = kKeys * 128;
constexpr int kTileBytes = kSlabs * kSlabBytes;
constexpr int kTiles = kDepth == 64 ? 4 : 3;  // tiles in shared memory

// Begins to copy kCount rows, from row `first` on, as slabs of 64 columns. Rows from `size` on become 0.
template <int kCount>
XPUD_DEVICE void BeginTile(uint32_t tile, const T* from, int64_t stride, int first, int size, int depth) {
  constexpr int kChunks = kDepth / 8, kStep = kLanes / kChunks;
  static_assert(kCount % 8 == 0 && kStep % 8 == 0);
  const int chunk = Lane() % kChunks, lane_row = Lane() / kChunks;
  const uint32_t to = tile + chunk / 8 * kCount * 128 + (chunk % 8 ^ lane_row % 8) * 16;
  const T* at = from + (first + lane_row) * stride + chunk * 8;
#pragma unroll
  for (int row = lane_row; row < (kCount + kStep - 1) / kStep * kStep + lane_row; row += kStep) {
    if (kCount % kStep == 0 || row < kCount)
      CopyChunk(to + row * 128, at, first + row < size && chunk * 8 < depth);
    at += kStep * stride;
  }
}

// Makes copies of all lanes visible to wgmma, except for the kLeft groups committed last.
template <int kLeft = 0>
XPUD_DEVICE void Publish() {
  WaitForCopies<kLeft>();
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  Synchronize();
}

// The tiles of keys and values in shared memory, and their copies, which end in the order in which they
// began.
class Tiles {
 public:
  XPUD_DEVICE_MEMBER Tiles(const AttentionArguments& p, const Heads<T>& heads, KeyRange range,
                           uint32_t memory)
      : count(range.end > range.begin ? (range.end - range.begin + kKeys - 1) / kKeys : 0),
        p_(p),
        heads_(heads),
        range_(range),
        memory_(memory) {}

  // Keys have one tile, which is free once their scores are computed, or two in turn. Values have two.
  static constexpr int kKeyTiles = kTiles - 2;
  XPUD_DEVICE_MEMBER uint32_t KeysAt(int tile) const { return memory_ + tile % kKeyTiles * kTileBytes; }
  XPUD_DEVICE_MEMBER uint32_t ValuesAt(int tile) const {
    return memory_ + (kKeyTiles + tile % 2) * kTileBytes;
  }
  // Queries are first in the tile that later becomes the second tile of values.
  XPUD_DEVICE_MEMBER uint32_t QueriesAt() const { return ValuesAt(1); }
  XPUD_DEVICE_MEMBER int FirstKey(int tile) const { return range_.begin + tile * kKeys; }

  XPUD_DEVICE_MEMBER void BeginKeys(int tile) const {
    if (tile < count)
      BeginTile<kKeys>(KeysAt(tile), heads_.k, p_.k_strides.row, FirstKey(tile), range_.end, heads_.depth);
    CommitCopies();
  }
  XPUD_DEVICE_MEMBER void BeginValues(int tile) const {
    if (tile < count)
      BeginTile<kKeys>(ValuesAt(tile), heads_.v, p_.v_strides.row, FirstKey(tile), range_.end,
                       heads_.value_depth);
    CommitCopies();
  }
  XPUD_DEVICE_MEMBER void BeginQueries(int first) const {
    BeginTile<kRows>(QueriesAt(), heads_.q, p_.q_strides.row, first, static_cast<int>(p_.queries),
                     heads_.depth);
    CommitCopies();
  }

  const int count;

 private:
  const AttentionArguments& p_;
  const Heads<T> heads_;
  const KeyRange range_;
  const uint32_t memory_;
};

// A lane's part of the group's queries.
struct Rows {
  XPUD_DEVICE_MEMBER Rows(const AttentionArguments& p, int first, int end)
      : first(first),
        row(first + Lane() / 32 * 16 + Lane() % 32 / 4),
        end(end),
        factor(static_cast<float>(p.scale) * kLog2E) {}

  const int first;     // query of the group
  const int row;       // this lane's first query; the other is 8 below
  const int end;       // of the keys
  const float factor;  // of scores
  Fragment query[kDepth / 16];
  float score[kKeys / 2], out[kDepth / 2] = {};
  Softmax softmax[2];

  XPUD_DEVICE_MEMBER void ReadQueries(uint32_t tile) {
    const int lane = Lane() % 32, row = Lane() / 32 * 16 + lane % 16;
#pragma unroll
    for (int d = 0; d < kDepth / 16; ++d)
      query[d] = LoadMatrices(ChunkAt(tile, kRows * 128, row, d * 2 + lane / 16));
  }

  XPUD_DEVICE_MEMBER void Hide(const AttentionArguments& p, int at) {
    if (at + kKeys > end || (p.causal && at + kKeys - 1 > first)) HideScores(p, row, at, end, score);
  }

  // Turns scores into `weight`. Out shrinks.
  XPUD_DEVICE_MEMBER void Weigh(Fragment (&weight)[kKeys / 16]) {
    float shrink[2];
#pragma unroll
    for (int half = 0; half < 2; ++half)
      shrink[half] = WeighRow<kKeys / 8>(softmax[half], factor,
                                         [&](int n, int e) -> float& { return score[n * 4 + half * 2 + e]; });
    Pack<T>(score, weight);
    Shrink(out, shrink);
  }

  XPUD_DEVICE_MEMBER void End(const AttentionArguments& p, const Block& block) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      EndRow<T, kDepth / 8, true>(p, block.b, block.h, row + half * 8, softmax[half].top, softmax[half].sum,
                                  [&](int n, int e) { return out[n * 4 + half * 2 + e]; });
    }
  }
};

// Computes the first tile's scores.
XPUD_DEVICE void AddFirstScores(const Tiles& tiles, Rows& rows) {
  Publish<1>();
  BeginScores<T, kSlabBytes>(rows.score, rows.query, tiles.KeysAt(0));
  if constexpr (Tiles::kKeyTiles > 1) tiles.BeginKeys(1);
  WaitFor<0>(rows.score);
  if constexpr (Tiles::kKeyTiles == 1) {
    Synchronize();
    tiles.BeginKeys(1);
  }
  Publish();
}

// Attends to a tile whose scores are known. Computes those of the next tile unless this is the last.
template <bool kLast>
XPUD_DEVICE void AttendTo(const AttentionArguments& p, const Tiles& tiles, int tile, Rows& rows) {
  float next[kKeys / 2];
  if constexpr (!kLast) {
    BeginScores<T, kSlabBytes>(next, rows.query, tiles.KeysAt(tile + 1));
    tiles.BeginValues(tile + 1);
    if constexpr (Tiles::kKeyTiles > 1) tiles.BeginKeys(tile + 2);
  }
  rows.Hide(p, tiles.FirstKey(tile));
  Fragment weight[kKeys / 16];
  rows.Weigh(weight);
  BeginOut<T, kSlabBytes>(rows.out, weight, tiles.ValuesAt(tile));
  if constexpr (!kLast) {
    WaitFor<1>(next);
    if constexpr (Tiles::kKeyTiles == 1) {
      Synchronize();
      tiles.BeginKeys(tile + 2);
    }
  }
  WaitFor<0>(rows.out);
  if constexpr (!kLast) {
    Publish();
#pragma unroll
    for (int i = 0; i < kKeys / 2; ++i) rows.score[i] = next[i];
  }
}

XPUD_DEVICE void Attend(const AttentionArguments& p) {
  constexpr int kMemory = kTiles * kTileBytes > kRows * kDepth * 2 ? kTiles * kTileBytes : kRows * kDepth * 2;
  XPUD_SHARED char memory[kMemory] __attribute__((aligned(1024)));
  const Block block = BlockOf(p, kRows);
  const int first = static_cast<int>(block.first);
  const Heads<T> heads = HeadsOf<T>(p, block);
  const KeyRange range = RangeOf(p, first + kRows);
  const Tiles tiles(p, heads, range, SharedAddress(memory));
  Rows rows(p, first, range.end);

  tiles.BeginQueries(first);
  tiles.BeginKeys(0);
  tiles.BeginValues(0);
  WaitForCopies<2>();
  Synchronize();
  rows.ReadQueries(tiles.QueriesAt());
  if (tiles.count > 0) AddFirstScores(tiles, rows);
#pragma unroll 1
  for (int tile = 0; tile + 1 < tiles.count; ++tile) AttendTo<false>(p, tiles, tile, rows);
  if (tiles.count > 0) AttendTo<true>(p, tiles, tiles.count - 1, rows);
  rows.End(p, block);
}

}  // namespace xpud::gpu

using namespace xpud::gpu;

// The second number is the minimum of groups for which a multiprocessor has room: they hide each other's
// waiting.
XPUD_KERNEL_OF(128, kDepth == 64 ? 3 : 2) attention_wgmma(const AttentionArguments p) { Attend(p); }
