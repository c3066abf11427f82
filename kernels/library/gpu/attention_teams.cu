// Attention of 16-bit types on Hopper's tensor cores for long sequences, without storing scores. One lane
// starts copies of tiles of keys and values. Two teams of four warps multiply, 64 queries each, and share the
// tiles. The teams alternate on the tensor cores, so that one computes its weights while the other multiplies
// (FlashAttention-3's ping-pong; Shah et al., 2024). Compiled to PTX once for each XPUD_ELEMENT and
// XPUD_DEPTH; no masks.
#include "kernels/library/gpu/attention_arguments.h"
#include "kernels/library/gpu/attention_device.h"
#include "kernels/library/gpu/attention_wgmma.h"
#include "kernels/library/gpu/barrier.h"
#include "kernels/library/gpu/device.h"
#include "kernels/library/gpu/tensor_map.h"
#include "kernels/library/gpu/walk.h"

namespace xpud::gpu {

using T = XPUD_ELEMENT;
constexpr int kDepth = XPUD_DEPTH;
constexpr int kTeams = AttentionArguments::kTeams;
constexpr int kTeamLanes = AttentionArguments::kTeamLanes;
constexpr int kTeamRows = AttentionArguments::kTeamRows;
constexpr int kRows = kTeams * kTeamRows;
constexpr int kKeys = 128;           // of a tile
constexpr int kSlabs = kDepth / 64;  // of 64 columns: 128 bytes, the width of the swizzle
constexpr int kQuerySlabBytes = kRows * 128;
constexpr int kSlabBytes = kKeys * 128;
constexpr int kTileBytes = kSlabs * kSlabBytes;
constexpr int kQueryStages = 2;                // items whose queries are in shared memory
constexpr int kStages = kDepth == 64 ? 3 : 2;  // tiles of keys, and the same number of tiles of values

// Shared memory.
constexpr int kQueryBytes = kSlabs * kQuerySlabBytes;
constexpr int kKeysAt = kQueryStages * kQueryBytes;
constexpr int kValuesAt = kKeysAt + kStages * kTileBytes;
constexpr int kBarriersAt = kValuesAt + kStages * kTileBytes;
constexpr int kItemsAt = kBarriersAt + (2 * kQueryStages + 4 * kStages) * 8;
constexpr int kItemBytes = 32;
constexpr int kLocalBytes = kItemsAt + kQueryStages * kItemBytes;
extern __attribute__((shared, aligned(1024))) char memory[];

// A tile in shared memory, and its barriers, whose current phase is `phase`.
struct Stage {
  uint32_t tile, full, empty, phase;
};
XPUD_DEVICE Stage Queries(int item) {
  const int stage = item % kQueryStages;
  const uint32_t base = SharedAddress(memory), barriers = base + kBarriersAt + stage * 16;
  return {base + stage * kQueryBytes, barriers, barriers + 8, static_cast<uint32_t>(item / kQueryStages & 1)};
}
// `tile` counts all tiles during the group's life.
XPUD_DEVICE Stage StageOf(int tile, bool values) {
  const int stage = tile % kStages;
  const uint32_t base = SharedAddress(memory);
  const uint32_t barriers = base + kBarriersAt + (2 * kQueryStages + stage * 4 + (values ? 2 : 0)) * 8;
  return {base + (values ? kValuesAt : kKeysAt) + stage * kTileBytes, barriers, barriers + 8,
          static_cast<uint32_t>(tile / kStages & 1)};
}

// One unit of work: kRows queries of a head. The copying lane stores it together with the queries.
struct Item {
  int b, h;
  int first;  // query
  int keys;   // that the queries attend to
  int tiles;  // 0: no more items
};
XPUD_DEVICE Item* ItemAt(int number) {
  return reinterpret_cast<Item*>(memory + kItemsAt + number % kQueryStages * kItemBytes);
}

// Iterates over this group's items.
class Items {
 public:
  XPUD_DEVICE_MEMBER explicit Items(const AttentionArguments& p)
      : blocks_(static_cast<int>((p.queries + kRows - 1) / kRows)),
        walk_(blocks_, static_cast<int>(p.batch * p.heads), p.keys * (p.depth + p.value_depth) * 2,
              p.causal != 0) {
    Read(p);
  }

  XPUD_DEVICE_MEMBER void Next(const AttentionArguments& p) {
    tiles_before += item.tiles;
    ++number;
    walk_.Next();
    Read(p);
  }

  Item item;
  int number = 0;
  int tiles_before = 0;  // of earlier items

 private:
  XPUD_DEVICE_MEMBER void Read(const AttentionArguments& p) {
    if (walk_.done) {
      item.tiles = 0;
      return;
    }
    item.h = walk_.head % static_cast<int>(p.heads);
    item.b = walk_.head / static_cast<int>(p.heads);
    item.first = (p.causal ? blocks_ - 1 - walk_.block : walk_.block) * kRows;
    item.keys = RangeOf<false>(p, item.first + kRows).end;
    item.tiles = (item.keys + kKeys - 1) / kKeys;
  }

  int blocks_;  // of a head
  Walk walk_;
};

// The tensor maps of this group.
XPUD_DEVICE const char* MapOf(const AttentionArguments& p, int tensor) {
  return static_cast<const char*>(p.maps) + GroupX() * AttentionArguments::kTeamMapBytes +
         tensor * kTensorMapBytes;
}

// Three of the copying warps make one map each.
XPUD_DEVICE void MakeMaps(const AttentionArguments& p) {
  const int warp = Lane() / 32;
  const auto make = [&](const void* data, const HeadStrides& strides, int64_t heads, int64_t rows,
                        int64_t columns, int copied) __attribute__((always_inline)) {
    MakeTensorMap(MapOf(p, warp), SharedAddress(memory) + warp * kTensorMapBytes,
                  {data, columns, rows, heads, p.batch, strides.row, strides.head, strides.batch}, copied);
  };
  if (warp == 0) make(p.q, p.q_strides, p.heads, p.queries, p.depth, kRows);
  if (warp == 1) make(p.k, p.k_strides, Quotient(p.heads, p.heads_per_key_head), p.keys, p.depth, kKeys);
  if (warp == 2)
    make(p.v, p.v_strides, Quotient(p.heads, p.heads_per_key_head), p.keys, p.value_depth, kKeys);
}

// Runs on one lane.
XPUD_DEVICE void CopyTiles(const AttentionArguments& p) {
  const auto copy = [&](const Item& item, const Stage& stage, int tensor, int slab_bytes, int row,
                        int head) __attribute__((always_inline)) {
    ArriveExpecting(stage.full, kSlabs * slab_bytes);
#pragma unroll
    for (int slab = 0; slab < kSlabs; ++slab)
      BeginCopy(MapOf(p, tensor), stage.tile + slab * slab_bytes, stage.full, slab * 64, row, head, item.b);
  };
  const auto copy_tile = [&](const Items& w, int tile, bool values) __attribute__((always_inline)) {
    const int at = w.tiles_before + tile;
    const Stage stage = StageOf(at, values);
    if (at >= kStages) Await(stage.empty, stage.phase ^ 1);
    copy(w.item, stage, values ? 2 : 1, kSlabBytes, tile * kKeys,
         w.item.h / static_cast<int>(p.heads_per_key_head));
  };
  const auto begin_item = [&](const Items& w) __attribute__((always_inline)) {
    const Stage queries = Queries(w.number);
    if (w.number >= kQueryStages) Await(queries.empty, queries.phase ^ 1);
    *ItemAt(w.number) = w.item;
    if (w.item.tiles == 0) {
      Arrive(queries.full);
      return;
    }
    copy(w.item, queries, 0, kQuerySlabBytes, w.item.first, w.item.h);
    copy_tile(w, 0, false);
  };

  Items now(p);
  begin_item(now);
  while (now.item.tiles > 0) {
#pragma unroll 1
    for (int tile = 0; tile + 1 < now.item.tiles; ++tile) {
      copy_tile(now, tile + 1, false);
      copy_tile(now, tile, true);
    }
    Items next = now;
    next.Next(p);
    begin_item(next);
    copy_tile(now, now.item.tiles - 1, true);
    now = next;
  }
}

// A lane's part of its team's 64 queries: two rows, 8 apart, in the layout of accumulators.
class Rows {
 public:
  XPUD_DEVICE_MEMBER explicit Rows(int team) : team_(team) {}

  XPUD_DEVICE_MEMBER void BeginScoresOf(const Stage& queries, const Stage& keys) {
    BeginScores<T, kQuerySlabBytes, kSlabBytes, kDepth>(score_, queries.tile + team_ * kTeamRows * 128,
                                                        keys.tile);
  }
  XPUD_DEVICE_MEMBER void BeginOutOf(const Stage& values) {
    BeginOut<T, kSlabBytes>(out_, weight_, values.tile);
  }
  // Waits for the scores; `kLater` products that began later may still run.
  template <int kLater>
  XPUD_DEVICE_MEMBER void WaitForScores() {
    WaitFor<kLater>(score_);
  }
  XPUD_DEVICE_MEMBER void WaitForOut() { WaitFor<0>(out_); }

  // Removes the scores of keys in the tile to which the query does not attend.
  XPUD_DEVICE_MEMBER void Hide(const AttentionArguments& p, const Item& item, int tile) {
    const int warp_row = WarpRow(item), at = tile * kKeys;
    if (at + kKeys > item.keys || (p.causal && at + kKeys - 1 > warp_row))
      HideScores(p, warp_row + Lane() % 32 / 4, at, item.keys, score_);
  }

  // Converts scores to weights, without dividing by their sum. A row's largest score and its sum are two
  // dependency chains each, not one.
  XPUD_DEVICE_MEMBER void Weigh(float factor) {
    float most[2][2], part[2][2] = {}, base[2];
#pragma unroll
    for (int i = 0; i < 4; ++i) most[i / 2][i % 2] = score_[i];
#pragma unroll
    for (int n = 1; n < kKeys / 8; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) most[i / 2][i % 2] = Max(most[i / 2][i % 2], score_[n * 4 + i]);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float m = Max(most[half][0], most[half][1]);
      m = Max(m, Across(m, 1));
      m = Max(m, Across(m, 2));
      const auto raised = softmax_[half].Raise(Max(softmax_[half].top, m * factor));
      base[half] = raised.base;
      shrink_[half] = raised.shrink;
    }
#pragma unroll
    for (int n = 0; n < kKeys / 8; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float& s = score_[n * 4 + i];
        s = Exp2(__builtin_fmaf(s, factor, -base[i / 2]));
        part[i / 2][i % 2] += s;
      }
#pragma unroll
    for (int half = 0; half < 2; ++half)
      softmax_[half].sum = softmax_[half].sum * shrink_[half] + (part[half][0] + part[half][1]);
  }

  // Prepares the weights as a factor for BeginOutOf, and `out` as its addend. REQUIRES: no product in flight
  // uses them.
  XPUD_DEVICE_MEMBER void Prepare() {
    Pack<T>(score_, weight_);
    Shrink(out_, shrink_);
  }

  XPUD_DEVICE_MEMBER void BeginItem() {
#pragma unroll
    for (Softmax& row : softmax_) row = Softmax();
#pragma unroll
    for (float& x : out_) x = 0;
  }

  XPUD_DEVICE_MEMBER void EndItem(const AttentionArguments& p, const Item& item) {
#pragma unroll
    for (int half = 0; half < 2; ++half)
      EndRow<T, kDepth / 8, false>(p, item.b, item.h, WarpRow(item) + Lane() % 32 / 4 + half * 8,
                                   softmax_[half].top, softmax_[half].sum,
                                   [&](int n, int e) { return out_[n * 4 + half * 2 + e]; });
  }

 private:
  // Returns the first of a warp's 16 rows.
  XPUD_DEVICE_MEMBER int WarpRow(const Item& item) const {
    return item.first + team_ * kTeamRows + Lane() % kTeamLanes / 32 * 16;
  }

  const int team_;
  float score_[kKeys / 2], out_[kDepth / 2], shrink_[2];
  Softmax softmax_[2];
  Fragment weight_[kKeys / 16];
};

// A team's part of all items. The next scores are computed while the last weights multiply values.
XPUD_DEVICE void AttendItems(const AttentionArguments& p, int team) {
  const float factor = static_cast<float>(p.scale) * kLog2E;
  Rows rows(team);
  const auto begin_scores = [&](const Stage& queries, const Stage& keys) __attribute__((always_inline)) {
    Await(keys.full, keys.phase);
    rows.BeginScoresOf(queries, keys);
  };
  const auto weigh = [&](const Item& item, int tile, const Stage& queries, const Stage& keys)
                         __attribute__((always_inline)) {
                           Release(keys.empty);
                           if (tile + 1 == item.tiles) Release(queries.empty);
                           rows.Hide(p, item, tile);
                           rows.Weigh(factor);
                         };
  const auto begin_out = [&](const Stage& values) __attribute__((always_inline)) {
    Await(values.full, values.phase);
    rows.BeginOutOf(values);
  };
  const auto end_out = [&](const Stage& values) __attribute__((always_inline)) {
    rows.WaitForOut();
    Release(values.empty);
  };

  int at = 0;  // number of the tile, among all
#pragma unroll 1
  for (int number = 0;; ++number, ++at) {
    const Stage queries = Queries(number), first = StageOf(at, false);
    Await(queries.full, queries.phase);
    const Item item = *ItemAt(number);
    if (item.tiles == 0) break;
    rows.BeginItem();
    begin_scores(queries, first);
    rows.template WaitForScores<0>();
    weigh(item, 0, queries, first);
    rows.Prepare();
#pragma unroll 1
    for (int tile = 1; tile < item.tiles; ++tile, ++at) {
      const Stage keys = StageOf(at + 1, false), values = StageOf(at, true);
      AwaitTurn<kTeams * kTeamLanes>(1 + team);
      begin_scores(queries, keys);
      begin_out(values);
      GiveTurn<kTeams * kTeamLanes>(1 + (team + 1) % kTeams);
      rows.template WaitForScores<1>();
      weigh(item, tile, queries, keys);
      end_out(values);
      rows.Prepare();
    }
    const Stage values = StageOf(at, true);
    begin_out(values);
    end_out(values);
    rows.EndItem(p, item);
  }
}

XPUD_DEVICE void Attend(const AttentionArguments& p) {
  if (Lane() == 0) {
    for (int item = 0; item < kQueryStages; ++item) {
      InitialiseBarrier(Queries(item).full, 1);
      InitialiseBarrier(Queries(item).empty, kTeams * 4);
    }
    for (int tile = 0; tile < kStages; ++tile)
      for (int values = 0; values < 2; ++values) {
        const Stage stage = StageOf(tile, values != 0);
        InitialiseBarrier(stage.full, 1);
        InitialiseBarrier(stage.empty, kTeams * 4);
      }
  }
  MakeMaps(p);
  ShowBarriersToCopies();
  Synchronize();
  const int team = Lane() / kTeamLanes - 1;
  if (team < 0) {
    GiveRegisters<40>();
    if (Lane() == 0) CopyTiles(p);
    return;
  }
  TakeRegisters<232>();
  if (team + 1 == kTeams) GiveTurn<kTeams * kTeamLanes>(1);
  AttendItems(p, team);
  if (team == 0) AwaitTurn<kTeams * kTeamLanes>(1);  // the turn that no team takes
}

}  // namespace xpud::gpu

using namespace xpud::gpu;

XPUD_KERNEL_OF((kTeams + 1) * kTeamLanes, 1) attention_teams(const AttentionArguments p) { Attend(p); }
XPUD_LOCAL_MEMORY(attention_teams, kLocalBytes);
