// Gradients of attention of 16-bit types on Hopper's tensor cores for long sequences, without storing scores.
// As in attention_mma_gradient.cu, scores are computed in both kernels, so that each gradient is summed by
// one group in a fixed order: one kernel takes keys, with transposed scores, the other takes queries. As in
// attention_teams.cu, one lane starts copies of tiles, and two teams of four warps multiply, 64 rows each.
// Compiled to PTX once for each XPUD_ELEMENT and XPUD_DEPTH; no masks, no dropout.
//
// Both kernels do the same with their own rows (a, b), which stay, and tiles of the others (c, d):
//   weight = exp(scale a c' - logsumexp)      slope = weight (b d' - delta)
//   keys:     a, b = k, v         c, d = q, gradient    dv = weight d     dk = scale slope c
//   queries:  a, b = q, gradient  c, d = k, v                             dq = scale slope c
#include "kernels/library/gpu/attention_arguments.h"
#include "kernels/library/gpu/attention_device.h"
#include "kernels/library/gpu/attention_wgmma.h"
#include "kernels/library/gpu/barrier.h"
#include "kernels/library/gpu/device.h"
#include "kernels/library/gpu/tensor_map.h"
#include "kernels/library/gpu/walk.h"

namespace xpud::gpu {

using T = XPUD_ELEMENT;
using Arguments = AttentionGradientArguments;
constexpr int kDepth = XPUD_DEPTH;
constexpr int kTeams = Arguments::kTeams;
constexpr int kTeamLanes = Arguments::kTeamLanes;
constexpr int kTeamRows = Arguments::kTeamRows;
constexpr int kRows = kTeams * kTeamRows;  // of an item
constexpr int kSlabs = kDepth / 64;        // of 64 columns: 128 bytes, the width of the swizzle
constexpr int kOthers = 64;                // rows of a tile of c or d
constexpr int kTensors = 4;                // a, b, c, d
extern __attribute__((shared, aligned(1024))) char memory[];

// Shared memory of the kernel of keys, or of queries.
template <bool kOfKeys>
struct Layout {
  // Whether a and b stay in registers, and whether the scores of a tile begin before the sums of the last
  // have ended: as far as registers suffice. At a depth of 64, a and b in registers gave wrong results from
  // the second tile on (driver 580); the cause is not known.
  static constexpr bool kKeeps = !kOfKeys && kDepth > 64;
  static constexpr bool kOverlaps = !kOfKeys || kDepth <= 64;
  static constexpr int kStages = 4;
  static constexpr int kCopyRegisters = kDepth > 64 ? 24 : 40, kTeamRegisters = kDepth > 64 ? 240 : 232;
  static constexpr int kOwnSlabBytes = kRows * 128, kOwnBytes = kSlabs * kOwnSlabBytes;
  static constexpr int kSlabBytes = kOthers * 128, kTileBytes = kSlabs * kSlabBytes;
  static constexpr int kTilesAt = 2 * kOwnBytes;
  static constexpr int kNumbersAt = kTilesAt + 2 * kStages * kTileBytes;
  static constexpr int kNumberBytes = kOfKeys ? 2 * kOthers * 4 : 0;  // logsumexp and delta, for each stage
  static constexpr int kBarriersAt = kNumbersAt + kStages * kNumberBytes;
  static constexpr int kItemsAt = kBarriersAt + (2 + 4 * kStages) * 8;
  static constexpr int kItemBytes = 32;
  static constexpr int kLocalBytes = kItemsAt + 2 * kItemBytes;
  static_assert(kLocalBytes <= 227 * 1024);
};

// Tiles in shared memory, and their barriers, whose current phase is `phase`.
struct Stage {
  uint32_t tile, full, empty, phase;
};
// a and b of an item: one barrier for both.
template <bool kOfKeys>
XPUD_DEVICE Stage Own(int item) {
  const uint32_t base = SharedAddress(memory), barriers = base + Layout<kOfKeys>::kBarriersAt;
  return {base, barriers, barriers + 8, static_cast<uint32_t>(item & 1)};
}
// `which`: 0 for c, 1 for d. `tile` counts all tiles during the group's life.
template <bool kOfKeys>
XPUD_DEVICE Stage Other(int tile, int which) {
  using L = Layout<kOfKeys>;
  const int stage = tile % L::kStages;
  const uint32_t base = SharedAddress(memory);
  const uint32_t barriers = base + L::kBarriersAt + (2 + stage * 4 + which * 2) * 8;
  return {base + L::kTilesAt + (2 * stage + which) * L::kTileBytes, barriers, barriers + 8,
          static_cast<uint32_t>(tile / L::kStages & 1)};
}
// logsumexp (in units of log 2) of the queries of a tile, followed by their delta.
XPUD_DEVICE float* NumbersOf(int tile) {
  using L = Layout<true>;
  return reinterpret_cast<float*>(memory + L::kNumbersAt + tile % L::kStages * L::kNumberBytes);
}

// One unit of work: kRows keys of a key head, or queries of a head.
struct Item {
  int b, h;    // h: a key head, or head
  int first;   // own row
  int others;  // the first row of the first tile of the others
  int tiles;   // of the others, for each head
  int heads;   // that share the own rows; 0: no more items
};

// Iterates over this group's items.
template <bool kOfKeys>
class Items {
 public:
  XPUD_DEVICE_MEMBER explicit Items(const Arguments& p)
      : heads_(static_cast<int>(kOfKeys ? Quotient(p.heads, p.heads_per_key_head) : p.heads)),
        blocks_(static_cast<int>(((kOfKeys ? p.keys : p.queries) + kRows - 1) / kRows)),
        walk_(blocks_, static_cast<int>(p.batch) * heads_,
              (kOfKeys ? p.queries * p.heads_per_key_head : p.keys) * (p.depth + p.value_depth) * 2,
              p.causal != 0) {
    Read(p);
  }

  XPUD_DEVICE_MEMBER void Next(const Arguments& p) {
    ++number;
    walk_.Next();
    Read(p);
  }

  Item item;
  int number = 0;

 private:
  XPUD_DEVICE_MEMBER void Read(const Arguments& p) {
    item.heads = walk_.done ? 0 : kOfKeys ? static_cast<int>(p.heads_per_key_head) : 1;
    if (walk_.done) return;
    item.h = walk_.head % heads_;
    item.b = walk_.head / heads_;
    item.others = 0;
    int end = static_cast<int>(kOfKeys ? p.queries : p.keys);
    if (kOfKeys) {
      item.first = walk_.block * kRows;
      if (p.causal) item.others = item.first / kOthers * kOthers;
    } else {
      item.first = (p.causal ? blocks_ - 1 - walk_.block : walk_.block) * kRows;
      if (p.causal) end = Least(end, item.first + kRows);
    }
    item.tiles = end > item.others ? (end - item.others + kOthers - 1) / kOthers : 0;
  }

  int heads_, blocks_;
  Walk walk_;
};

template <bool kOfKeys>
XPUD_DEVICE Item* ItemAt(int number) {
  return reinterpret_cast<Item*>(memory + Layout<kOfKeys>::kItemsAt +
                                 number % 2 * Layout<kOfKeys>::kItemBytes);
}

// ---- copies ----

// The map of tensor 0 (a) to 3 (d), of this group.
XPUD_DEVICE const char* MapOf(const Arguments& p, int tensor) {
  return static_cast<const char*>(p.maps) + (GroupX() * kTensors + tensor) * kTensorMapBytes;
}

// Each of the copying warps makes a map.
template <bool kOfKeys>
XPUD_DEVICE void MakeMaps(const Arguments& p) {
  const int warp = Lane() / 32;
  if (warp >= kTensors) return;
  const bool of_keys = (warp < 2) == kOfKeys, first = warp % 2 == 0;  // k, v; k or q
  const HeadStrides& strides =
      of_keys ? (first ? p.k_strides : p.v_strides) : (first ? p.q_strides : p.gradient_strides);
  MakeTensorMap(MapOf(p, warp), SharedAddress(memory) + warp * kTensorMapBytes,
                {of_keys ? (first ? p.k : p.v) : (first ? p.q : p.gradient), first ? p.depth : p.value_depth,
                 of_keys ? p.keys : p.queries, of_keys ? Quotient(p.heads, p.heads_per_key_head) : p.heads,
                 p.batch, strides.row, strides.head, strides.batch},
                warp < 2 ? kRows : kOthers);
}

// Runs on one lane.
template <bool kOfKeys>
XPUD_DEVICE void CopyTiles(const Arguments& p) {
  using L = Layout<kOfKeys>;
  const auto copy = [&](int tensor, uint32_t to, uint32_t barrier, int slab_bytes, int row, int head,
                        int batch) __attribute__((always_inline)) {
#pragma unroll
    for (int slab = 0; slab < kSlabs; ++slab)
      BeginCopy(MapOf(p, tensor), to + slab * slab_bytes, barrier, slab * 64, row, head, batch);
  };
  int tile = 0;
  for (Items<kOfKeys> items(p);; items.Next(p)) {
    const Item item = items.item;
    const Stage own = Own<kOfKeys>(items.number);
    if (items.number > 0) Await(own.empty, own.phase ^ 1);
    *ItemAt<kOfKeys>(items.number) = item;
    if (item.heads == 0) {
      Arrive(own.full);
      return;
    }
    ArriveExpecting(own.full, 2 * L::kOwnBytes);
    copy(0, own.tile, own.full, L::kOwnSlabBytes, item.first, item.h, item.b);
    copy(1, own.tile + L::kOwnBytes, own.full, L::kOwnSlabBytes, item.first, item.h, item.b);
    for (int head = 0; head < item.heads; ++head) {
      const int h = kOfKeys ? item.h * item.heads + head : item.h / static_cast<int>(p.heads_per_key_head);
#pragma unroll 1
      for (int i = 0; i < item.tiles; ++i, ++tile) {
#pragma unroll
        for (int which = 0; which < 2; ++which) {
          const Stage stage = Other<kOfKeys>(tile, which);
          if (tile >= L::kStages) Await(stage.empty, stage.phase ^ 1);
          ArriveExpecting(stage.full, L::kTileBytes);
          copy(2 + which, stage.tile, stage.full, L::kSlabBytes, item.others + i * kOthers, h, item.b);
        }
      }
    }
  }
}

// Copies the numbers of queries for the kernel of keys, which needs them by column. Runs on one warp.
XPUD_DEVICE void CopyNumbers(const Arguments& p) {
  using L = Layout<true>;
  const int lane = Lane() % 32;
  int tile = 0;
  for (Items<true> items(p); items.item.heads > 0; items.Next(p)) {
    const Item item = items.item;
    for (int head = 0; head < item.heads; ++head) {
      const int64_t at = (item.b * p.heads + item.h * item.heads + head) * p.queries;
#pragma unroll 1
      for (int i = 0; i < item.tiles; ++i, ++tile) {
        const Stage stage = Other<true>(tile, 0);
        if (tile >= L::kStages) Await(stage.empty, stage.phase ^ 1);
        float* const to = NumbersOf(tile);
#pragma unroll
        for (int n = lane; n < lane + kOthers; n += 32) {
          const int64_t row = item.others + i * kOthers + n;
          to[n] = row < p.queries ? p.base[at + row] : 0.0f;
          to[kOthers + n] = row < p.queries ? static_cast<const float*>(p.delta)[at + row] : 0.0f;
        }
        __nvvm_bar_warp_sync(~0u);
        Release(stage.full);
      }
    }
  }
}

// ---- products ----

// A lane's part of its team's 64 own rows: two rows, 8 apart, in the layout of accumulators.
template <bool kOfKeys>
class Rows {
 public:
  using L = Layout<kOfKeys>;

  XPUD_DEVICE_MEMBER explicit Rows(int team) : team_(team) {}

  XPUD_DEVICE_MEMBER void BeginItem(const Arguments& p, const Item& item) {
#pragma unroll
    for (float& x : sum_) x = 0;
#pragma unroll
    for (float& x : other_sum_) x = 0;
    if (kOfKeys) return;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = WarpRow(item) + Lane() % 32 / 4 + half * 8;
      const int64_t at = (item.b * p.heads + item.h) * p.queries + row;
      base_[half] = row < p.queries ? p.base[at] : 0.0f;
      delta_[half] = row < p.queries ? static_cast<const float*>(p.delta)[at] : 0.0f;
    }
  }

  // Reads a and b, if they stay in registers.
  XPUD_DEVICE_MEMBER void Keep(const Stage& own) {
    if constexpr (L::kKeeps) {
      const int row = team_ * kTeamRows + Lane() % kTeamLanes / 32 * 16 + Lane() % 16;
#pragma unroll
      for (int d = 0; d < kDepth / 16; ++d) {
        const int chunk = d * 2 + Lane() % 32 / 16;
        const uint32_t at = ChunkAt(own.tile, L::kOwnSlabBytes, row, chunk);
        own_a_[d] = LoadMatrices(at);
        own_b_[d] = LoadMatrices(at + L::kOwnBytes);
      }
    }
  }

  XPUD_DEVICE_MEMBER void BeginScoresOf(const Stage& own, const Stage& c) {
    if constexpr (L::kKeeps)
      BeginScores<T, L::kSlabBytes>(weight_, own_a_, c.tile);
    else
      BeginScores<T, L::kOwnSlabBytes, L::kSlabBytes, kDepth>(weight_, own.tile + team_ * kTeamRows * 128,
                                                              c.tile);
  }
  XPUD_DEVICE_MEMBER void BeginSlopes(const Stage& own, const Stage& d) {
    if constexpr (L::kKeeps)
      BeginScores<T, L::kSlabBytes>(slope_, own_b_, d.tile);
    else
      BeginScores<T, L::kOwnSlabBytes, L::kSlabBytes, kDepth>(
          slope_, own.tile + L::kOwnBytes + team_ * kTeamRows * 128, d.tile);
  }
  // Waits for the scores, and for all products that began before them. `kLater` may still run.
  template <int kLater>
  XPUD_DEVICE_MEMBER void WaitForScores() {
    WaitFor<kLater>(weight_);
  }
  template <int kLater>
  XPUD_DEVICE_MEMBER void WaitForSlopes() {
    WaitFor<kLater>(slope_);
  }
  XPUD_DEVICE_MEMBER void WaitForSums() {
    WaitFor<0>(sum_);
    if constexpr (kOfKeys) WaitFor<0>(other_sum_);
  }

  // Converts scores to weights. `other` is the first row of the tile.
  XPUD_DEVICE_MEMBER void Weigh(const Arguments& p, const Item& item, int other, const float* numbers,
                                float factor) {
#pragma unroll
    for (int n = 0; n < kOthers / 8; ++n) {
      float base[4];
      Spread(numbers, n, base_, base);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float& w = weight_[n * 4 + i];
        w = Exp2(__builtin_fmaf(w, factor, -base[i]));
      }
    }
    const int own = WarpRow(item), end = static_cast<int>(kOfKeys ? p.queries : p.keys);
    const bool crosses = kOfKeys ? other < own + 15 : other + kOthers - 1 > own;
    if (other + kOthers <= end && !(p.causal && crosses)) return;
    const int lane = Lane() % 32;
#pragma unroll
    for (int i = 0; i < kOthers / 2; ++i) {
      const int row = own + lane / 4 + i / 2 % 2 * 8, column = other + i / 4 * 8 + lane % 4 * 2 + i % 2;
      if (column >= end || (p.causal && (kOfKeys ? row > column : column > row))) weight_[i] = 0;
    }
  }

  XPUD_DEVICE_MEMBER void BeginOtherSum(const Stage& d) {
    if constexpr (kOfKeys) {
      Pack<T>(weight_, factor_);
      BeginOut<T, L::kSlabBytes>(other_sum_, factor_, d.tile);
    }
  }

  // Converts products of the gradient and values to slopes of scores.
  XPUD_DEVICE_MEMBER void Slope(const float* numbers) {
#pragma unroll
    for (int n = 0; n < kOthers / 8; ++n) {
      float delta[4];
      Spread(numbers + kOthers, n, delta_, delta);
#pragma unroll
      for (int i = 0; i < 4; ++i) slope_[n * 4 + i] = weight_[n * 4 + i] * (slope_[n * 4 + i] - delta[i]);
    }
  }

  XPUD_DEVICE_MEMBER void BeginSum(const Stage& c) {
    Pack<T>(slope_, slope_factor_);
    BeginOut<T, L::kSlabBytes>(sum_, slope_factor_, c.tile);
  }

  XPUD_DEVICE_MEMBER void EndItem(const Arguments& p, const Item& item) {
    const float scale = static_cast<float>(p.scale);
    if constexpr (kOfKeys) {
      Store(item, p.dk, p.dk_strides, p.keys, p.depth, scale, sum_);
      Store(item, p.dv, p.dv_strides, p.keys, p.value_depth, 1, other_sum_);
    } else {
      Store(item, p.dq, p.dq_strides, p.queries, p.depth, scale, sum_);
    }
  }

 private:
  // The numbers for block n of a tile's columns: by column from shared memory, or those of the lane's rows.
  static XPUD_DEVICE_MEMBER void Spread(const float* numbers, int n, const float (&of_rows)[2],
                                        float (&to)[4]) {
    const float* const pair = numbers + n * 8 + Lane() % 4 * 2;
#pragma unroll
    for (int i = 0; i < 4; ++i) to[i] = kOfKeys ? pair[i % 2] : of_rows[i / 2];
  }

  // Returns the first of a warp's 16 rows.
  XPUD_DEVICE_MEMBER int WarpRow(const Item& item) const {
    return item.first + team_ * kTeamRows + Lane() % kTeamLanes / 32 * 16;
  }

  XPUD_DEVICE_MEMBER void Store(const Item& item, void* data, const HeadStrides& s, int64_t size,
                                int64_t depth, float factor, const float (&sum)[kDepth / 2]) const {
    const bool wide = RowsAreWide(data, s);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int64_t row = WarpRow(item) + Lane() % 32 / 4 + half * 8;
      T* const to = static_cast<T*>(data) + item.b * s.batch + item.h * s.head + row * s.row;
      StoreRow<kDepth / 8>(
          to, row < size ? static_cast<int>(depth) : 0, wide, [&](int n) __attribute__((always_inline)) {
            return Pair<T>(sum[n * 4 + half * 2] * factor, sum[n * 4 + half * 2 + 1] * factor);
          });
    }
  }

  const int team_;
  float weight_[kOthers / 2], slope_[kOthers / 2], sum_[kDepth / 2], other_sum_[kOfKeys ? kDepth / 2 : 1];
  float base_[2], delta_[2];  // only of queries
  Fragment own_a_[L::kKeeps ? kDepth / 16 : 1], own_b_[L::kKeeps ? kDepth / 16 : 1];
  Fragment factor_[kOfKeys ? kOthers / 16 : 1], slope_factor_[kOthers / 16];
};

// A team's part of all items. Each tile's scores begin while the last tile's sums are computed.
template <bool kOfKeys>
XPUD_DEVICE void AddItems(const Arguments& p, int team) {
  using L = Layout<kOfKeys>;
  const float factor = static_cast<float>(p.scale) * kLog2E;
  Rows<kOfKeys> rows(team);
  const auto release = [](int tile) __attribute__((always_inline)) {
    Release(Other<kOfKeys>(tile, 0).empty);
    if (kOfKeys) Release(Other<kOfKeys>(tile, 1).empty);
  };
  int at = 0;  // number of the tile, among all
#pragma unroll 1
  for (int number = 0;; ++number) {
    const Stage own = Own<kOfKeys>(number);
    Await(own.full, own.phase);
    const Item item = *ItemAt<kOfKeys>(number);
    if (item.heads == 0) break;
    rows.BeginItem(p, item);
    rows.Keep(own);
    if (L::kKeeps) Release(own.empty);
    const int first = at, end = at + item.heads * item.tiles;
    int other = item.others;  // first row of the tile
#pragma unroll 1
    for (; at < end; ++at) {
      const Stage c = Other<kOfKeys>(at, 0), d = Other<kOfKeys>(at, 1);
      const float* const numbers = NumbersOf(at);  // only of keys
      Await(c.full, c.phase);
      rows.BeginScoresOf(own, c);
      Await(d.full, d.phase);
      rows.BeginSlopes(own, d);
      rows.template WaitForScores<1>();
      if (L::kOverlaps && at > first) release(at - 1);
      rows.Weigh(p, item, other, numbers, factor);
      rows.BeginOtherSum(d);
      rows.template WaitForSlopes<kOfKeys ? 1 : 0>();
      if (!kOfKeys) Release(d.empty);
      if (!L::kKeeps && at + 1 == end) Release(own.empty);
      rows.Slope(numbers);
      rows.BeginSum(c);
      if (!L::kOverlaps) {
        rows.WaitForSums();
        release(at);
      }
      other += kOthers;
      if (kOfKeys && (at + 1 - first) % item.tiles == 0) other = item.others;
    }
    rows.WaitForSums();
    if (L::kOverlaps && end > first) release(end - 1);
    if (!L::kKeeps && end == first) Release(own.empty);
    rows.EndItem(p, item);
  }
}

template <bool kOfKeys>
XPUD_DEVICE void Gradients(const Arguments& p) {
  using L = Layout<kOfKeys>;
  if (Lane() == 0) {
    const Stage own = Own<kOfKeys>(0);
    InitialiseBarrier(own.full, 1);
    InitialiseBarrier(own.empty, kTeams * 4);
    for (int tile = 0; tile < L::kStages; ++tile)
      for (int which = 0; which < 2; ++which) {
        const Stage stage = Other<kOfKeys>(tile, which);
        InitialiseBarrier(stage.full, kOfKeys && which == 0 ? 2 : 1);  // the second for numbers
        InitialiseBarrier(stage.empty, kTeams * 4);
      }
  }
  MakeMaps<kOfKeys>(p);
  ShowBarriersToCopies();
  Synchronize();
  const int team = Lane() / kTeamLanes - 1;
  if (team < 0) {
    GiveRegisters<L::kCopyRegisters>();
    if (Lane() == 0) CopyTiles<kOfKeys>(p);
    if (kOfKeys && Lane() / 32 == 1) CopyNumbers(p);
    return;
  }
  TakeRegisters<L::kTeamRegisters>();
  AddItems<kOfKeys>(p, team);
}

}  // namespace xpud::gpu

using namespace xpud::gpu;

XPUD_KERNEL_OF((kTeams + 1) * kTeamLanes, 1) attention_teams_keys(const AttentionGradientArguments p) {
  Gradients<true>(p);
}
XPUD_LOCAL_MEMORY(attention_teams_keys, Layout<true>::kLocalBytes);
XPUD_KERNEL_OF((kTeams + 1) * kTeamLanes, 1) attention_teams_queries(const AttentionGradientArguments p) {
  Gradients<false>(p);
}
XPUD_LOCAL_MEMORY(attention_teams_queries, Layout<false>::kLocalBytes);
