// Attention of 16-bit types for Hopper's tensor cores over long sequences, scores never stored: a team of four
// warps copies tiles of keys and values, the others multiply, 64 queries each, and share what was copied. The
// teams take turns at the tensor cores, so that one weighs its scores while another multiplies
// (FlashAttention-3's ping-pong; Shah et al., 2024). Compiled to PTX once for each XPUD_ELEMENT and
// XPUD_DEPTH; no masks.
#include "kernels/library/gpu/attention_arguments.h"
#include "kernels/library/gpu/attention_device.h"
#include "kernels/library/gpu/attention_wgmma.h"
#include "kernels/library/gpu/barrier.h"
#include "kernels/library/gpu/device.h"

namespace xpud::gpu {

using T = XPUD_ELEMENT;
constexpr int kDepth = XPUD_DEPTH;
constexpr int kTeams = AttentionArguments::TeamsOf(kDepth);
constexpr int kTeamLanes = AttentionArguments::kTeamLanes;
constexpr int kTeamRows = AttentionArguments::kTeamRows;
constexpr int kRows = kTeams * kTeamRows;
constexpr int kKeys = 128;  // of a tile
constexpr int kSlabs = kDepth / 64;  // of 64 columns: 128 bytes, the width of the swizzle
constexpr int kQuerySlabBytes = kRows * 128;
constexpr int kSlabBytes = kKeys * 128;
constexpr int kTileBytes = kSlabs * kSlabBytes;
constexpr int64_t kCacheBytes = 64 << 20;  // for keys and values of the heads that are attended at once
constexpr int kStages = 2;  // tiles of keys, and as many of values, in shared memory

// Shared memory.
constexpr int kKeysAt = kSlabs * kQuerySlabBytes;
constexpr int kValuesAt = kKeysAt + kStages * kTileBytes;
constexpr int kBarriersAt = kValuesAt + kStages * kTileBytes;
constexpr int kLocalBytes = kBarriersAt + (2 + 4 * kStages) * 8;
extern __attribute__((shared, aligned(1024))) char memory[];

// A tile in shared memory, and its barriers, which take turns in `phase`.
struct Stage {
  uint32_t tile, full, empty, phase;
};
XPUD_DEVICE Stage Queries(int item) {
  const uint32_t base = SharedAddress(memory), barriers = base + kBarriersAt;
  return {base, barriers, barriers + 8, static_cast<uint32_t>(item & 1)};
}
// `tile` counts all tiles of the group's life.
XPUD_DEVICE Stage StageOf(int tile, bool values) {
  const int stage = tile % kStages;
  const uint32_t base = SharedAddress(memory);
  const uint32_t barriers = base + kBarriersAt + 16 + (stage * 4 + (values ? 2 : 0)) * 8;
  return {base + (values ? kValuesAt : kKeysAt) + stage * kTileBytes, barriers, barriers + 8,
          static_cast<uint32_t>(tile / kStages & 1)};
}

// What is computed at once: kRows queries of a head.
struct Item {
  int64_t b, h;
  int first;  // query
  KeyRange range;
  int tiles;
};

// Calls attend(item, tiles before it) for each of this group's items. Causal items are of
// different lengths: long ones come first, and groups take them in alternating order; few heads at a time, so
// that their keys and values stay in the cache.
template <typename Attend>
XPUD_DEVICE void ForEachItem(const AttentionArguments& p, Attend attend) {
  const int blocks = static_cast<int>((p.queries + kRows - 1) / kRows), heads = static_cast<int>(p.batch * p.heads);
  const int items = blocks * heads, groups = static_cast<int>(GroupsX()), group = static_cast<int>(GroupX());
  const int64_t head_bytes = p.keys * (p.depth + p.value_depth) * 2;
  const int section = static_cast<int>(Least<int64_t>(heads, kCacheBytes / head_bytes + 1));
  int tiles = 0;
#pragma unroll 1
  for (int number = 0;; ++number) {
    const int at = number * groups + (p.causal && number % 2 != 0 ? groups - 1 - group : group);
    if (number * groups >= items) break;
    if (at >= items) continue;
    int head = at / blocks, block = at % blocks;
    if (p.causal) {
      const int begin = at / (section * blocks) * section, size = Least(section, heads - begin);
      const int rest = at - begin * blocks;
      head = begin + rest % size;
      block = blocks - 1 - rest / size;
    }
    Item item;
    item.h = head % p.heads;
    item.b = head / p.heads;
    item.first = block * kRows;
    item.range = RangeOf<false>(p, item.first + kRows);
    const int keys = item.range.end - item.range.begin;
    item.tiles = keys > 0 ? (keys + kKeys - 1) / kKeys : 0;
    attend(item, tiles);
    tiles += item.tiles;
  }
}

// Begins to copy kCount rows from row `first` on as slabs of 64 columns; what lies from row `size` on is 0.
template <int kCount>
XPUD_DEVICE void BeginTile(uint32_t tile, const T* from, int64_t stride, int first, int size, int depth) {
  constexpr int kChunks = kDepth / 8, kStep = kTeamLanes / kChunks;
  static_assert(kCount % kStep == 0 && kStep % 8 == 0);
  const int lane = Lane() % kTeamLanes, chunk = lane % kChunks, row = lane / kChunks;
  uint32_t to = tile + chunk / 8 * kCount * 128 + row * 128 + (chunk % 8 ^ row % 8) * 16;
  const T* at = from + (first + row) * stride + chunk * 8;
  const int rows = chunk * 8 < depth ? size - first - row : 0;
#pragma unroll 8
  for (int i = 0; i < kCount; i += kStep) {
    CopyChunk(to, at, i < rows);
    to += kStep * 128;
    at += kStep * stride;
  }
}

XPUD_DEVICE void CopyTiles(const AttentionArguments& p) {
  int number = 0;
  ForEachItem(p, [&](const Item& item, int before) __attribute__((always_inline)) {
    const int64_t kh = item.h / p.heads_per_key_head;
    const T* const q = static_cast<const T*>(p.q) + item.b * p.q_strides.batch + item.h * p.q_strides.head;
    const T* const k = static_cast<const T*>(p.k) + item.b * p.k_strides.batch + kh * p.k_strides.head;
    const T* const v = static_cast<const T*>(p.v) + item.b * p.v_strides.batch + kh * p.v_strides.head;
    const int depth = static_cast<int>(p.depth), value_depth = static_cast<int>(p.value_depth);
    const auto copy = [&](int tile, bool values) __attribute__((always_inline)) {
      const Stage stage = StageOf(before + tile, values);
      if (before + tile >= kStages) Await(stage.empty, stage.phase ^ 1);
      BeginTile<kKeys>(stage.tile, values ? v : k, values ? p.v_strides.row : p.k_strides.row,
                       item.range.begin + tile * kKeys, item.range.end, values ? value_depth : depth);
      ArriveWithCopies(stage.full);
    };
    const Stage queries = Queries(number);
    if (number > 0) Await(queries.empty, queries.phase ^ 1);
    BeginTile<kRows>(queries.tile, q, p.q_strides.row, item.first, static_cast<int>(p.queries), depth);
    ArriveWithCopies(queries.full);
    if (item.tiles > 0) copy(0, false);
#pragma unroll 1
    for (int tile = 0; tile < item.tiles; ++tile) {
      if (tile + 1 < item.tiles) copy(tile + 1, false);
      copy(tile, true);
    }
    ++number;
  });
}

// A lane's part of its team's 64 queries: two rows, 8 apart, as accumulators have them.
class Rows {
 public:
  XPUD_DEVICE_MEMBER Rows(const Item& item, int team)
      : warp_row_(item.first + team * kTeamRows + Lane() % kTeamLanes / 32 * 16),
        queries_(SharedAddress(memory) + team * kTeamRows * 128) {
    top_[0] = top_[1] = -__builtin_inff();
  }

  XPUD_DEVICE_MEMBER void BeginScoresOf(const Stage& keys) {
    BeginScores<T, kQuerySlabBytes, kSlabBytes, kDepth>(score_, queries_, keys.tile);
  }
  XPUD_DEVICE_MEMBER void BeginOutOf(const Stage& values) { BeginOut<T, kSlabBytes>(out_, weight_, values.tile); }
  // Scores, of which `kLater` products that were begun later may go on.
  template <int kLater>
  XPUD_DEVICE_MEMBER void WaitForScores() {
    WaitFor<kLater>(score_);
  }
  XPUD_DEVICE_MEMBER void WaitForOut() { WaitFor<0>(out_); }

  // Takes out the scores of keys from `at` on that are not attended.
  XPUD_DEVICE_MEMBER void Mask(const AttentionArguments& p, const Item& item, int at) {
    const int keys = item.range.end, lane = Lane() % 32, row0 = warp_row_ + lane / 4;
    if (at + kKeys <= keys && !(p.causal && at + kKeys - 1 > warp_row_)) return;
#pragma unroll
    for (int i = 0; i < kKeys / 2; ++i) {
      const int key = at + i / 4 * 8 + lane % 4 * 2 + i % 2, row = row0 + i / 2 % 2 * 8;
      if (key >= keys || (p.causal && key > row)) score_[i] = -__builtin_inff();
    }
  }

  // Scores to weights, which lack the division by their sum. A row's largest score and its sum are two chains
  // of dependent instructions each, not one.
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
      m = Max(top_[half], m * factor);
      base[half] = m == -__builtin_inff() ? 0.0f : m;
      shrink_[half] = Exp2(top_[half] - base[half]);
      top_[half] = m;
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
      sum_[half] = sum_[half] * shrink_[half] + (part[half][0] + part[half][1]);
  }

  // Makes the weights a factor for BeginOutOf, and `out` what it is to be added to. Nothing may read them.
  XPUD_DEVICE_MEMBER void Prepare() {
#pragma unroll
    for (int n = 0; n < kKeys / 16; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) weight_[n].x[i] = Pair<T>(score_[n * 8 + i * 2], score_[n * 8 + i * 2 + 1]);
#pragma unroll
    for (int i = 0; i < kDepth / 2; ++i) out_[i] *= shrink_[i / 2 % 2];
  }

  XPUD_DEVICE_MEMBER void Store(const AttentionArguments& p, const Item& item) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float total = sum_[half];
      total += Across(total, 1);
      total += Across(total, 2);
      const float inverse = total == 0 ? 0.0f : 1.0f / total;
      const int row = warp_row_ + Lane() % 32 / 4 + half * 8;
      if (row >= p.queries) continue;
      const Result<T> to = ResultOf<T, false>(p, item.b, item.h, row);
      if (Lane() % 4 == 0) StoreLogsumexp(to, top_[half], total);
      StorePairs<kDepth / 8>(to, static_cast<int>(p.value_depth),
                             [&](int n, int e) { return out_[n * 4 + half * 2 + e] * inverse; });
    }
  }

 private:
  const int warp_row_;
  const uint32_t queries_;
  float score_[kKeys / 2], out_[kDepth / 2] = {}, top_[2], sum_[2] = {}, shrink_[2];
  Fragment weight_[kKeys / 16];
};

XPUD_DEVICE void Release(uint32_t barrier) {
  if (Lane() % 32 == 0) Arrive(barrier);
}

// A team's part of an item. The next scores are made while the weights of the last ones multiply values.
XPUD_DEVICE void AttendItem(const AttentionArguments& p, const Item& item, int number, int before, int team) {
  const float factor = static_cast<float>(p.scale) * kLog2E;
  const int last = item.tiles - 1;
  const Stage queries = Queries(number);
  Rows rows(item, team);
  const auto weigh = [&](int tile, const Stage& keys) __attribute__((always_inline)) {
    Release(keys.empty);
    if (tile == last) Release(queries.empty);
    rows.Mask(p, item, item.range.begin + tile * kKeys);
    rows.Weigh(factor);
  };

  AwaitCopies(queries.full, queries.phase);
  if (item.tiles > 0) {
    const Stage keys = StageOf(before, false);
    AwaitCopies(keys.full, keys.phase);
    rows.BeginScoresOf(keys);
    rows.template WaitForScores<0>();
    weigh(0, keys);
    rows.Prepare();
  } else {
    Release(queries.empty);
  }
#pragma unroll 1
  for (int tile = 0; tile < last; ++tile) {
    const Stage keys = StageOf(before + tile + 1, false), values = StageOf(before + tile, true);
    AwaitCopies(keys.full, keys.phase);
    AwaitTurn<2 * kTeamLanes>(1 + team);
    rows.BeginScoresOf(keys);
    AwaitCopies(values.full, values.phase);
    rows.BeginOutOf(values);
    GiveTurn<2 * kTeamLanes>(1 + (team + 1) % kTeams);
    rows.template WaitForScores<1>();
    weigh(tile + 1, keys);
    rows.WaitForOut();
    Release(values.empty);
    rows.Prepare();
  }
  if (item.tiles > 0) {
    const Stage values = StageOf(before + last, true);
    AwaitCopies(values.full, values.phase);
    rows.BeginOutOf(values);
    rows.WaitForOut();
    Release(values.empty);
  }
  rows.Store(p, item);
}

XPUD_DEVICE void Attend(const AttentionArguments& p) {
  if (Lane() == 0) {
    const Stage queries = Queries(0);
    InitialiseBarrier(queries.full, kTeamLanes);
    InitialiseBarrier(queries.empty, kTeams * 4);
    for (int tile = 0; tile < kStages; ++tile)
      for (int values = 0; values < 2; ++values) {
        const Stage stage = StageOf(tile, values != 0);
        InitialiseBarrier(stage.full, kTeamLanes);
        InitialiseBarrier(stage.empty, kTeams * 4);
      }
  }
  Synchronize();
  const int team = Lane() / kTeamLanes - 1;
  if (team < 0) {
    GiveRegisters<kTeams == 2 ? 40 : 32>();
    CopyTiles(p);
    return;
  }
  TakeRegisters<kTeams == 2 ? 232 : 160>();
  if (team + 1 == kTeams) GiveTurn<2 * kTeamLanes>(1);
  int number = 0;
  ForEachItem(p, [&](const Item& item, int before) __attribute__((always_inline)) {
    AttendItem(p, item, number++, before, team);
  });
  if (team == 0) AwaitTurn<2 * kTeamLanes>(1);  // the one that nobody takes
}

}  // namespace xpud::gpu

using namespace xpud::gpu;

XPUD_KERNEL_OF((kTeams + 1) * kTeamLanes, 1) attention_teams(const AttentionArguments p) { Attend(p); }
XPUD_LOCAL_MEMORY(attention_teams, kLocalBytes);
