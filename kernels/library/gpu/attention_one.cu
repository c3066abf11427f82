// Attention of one query, as in decoding: it is fast if many loads of k and v are in flight. Compiled to PTX
// once for each XPUD_ELEMENT.
#include "kernels/library/gpu/attention_arguments.h"
#include "kernels/library/gpu/attention_device.h"
#include "kernels/library/gpu/device.h"

namespace xpud::gpu {

using T = XPUD_ELEMENT;
constexpr int kWarps = AttentionArguments::kOneLanes / 32;
constexpr int kOwn = 16 / sizeof(T);  // columns of a lane: 16 bytes

struct Bits {
  uint32_t x[4];
};
XPUD_DEVICE Bits LoadBits(const T* from) {
  Bits b;
  asm volatile("ld.global.nc.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(b.x[0]), "=r"(b.x[1]), "=r"(b.x[2]), "=r"(b.x[3])
               : "l"(from));
  return b;
}
// Returns element i, in the type of the first argument.
XPUD_DEVICE float Element(float, const Bits& bits, int i) { return __builtin_bit_cast(float, bits.x[i]); }
template <typename Half>
XPUD_DEVICE float Element(Half half, const Bits& bits, int i) {
  half.bits = static_cast<uint16_t>(bits.x[i / 2] >> (i % 2 * 16));
  return Load(half);
}

// A lane's part of the query: kSpread lanes share a key, and each has kOwn of its columns.
template <int kSpread>
struct Row {
  static constexpr int kSlots = 32 / kSpread;             // keys of a warp at once
  static constexpr int kBatch = kSpread < 32 ? 4 : 8;     // keys whose loads are in flight together
  static constexpr int kKeys = kWarps * kSlots * kBatch;  // of a group
  static constexpr int kStates = kWarps * kSlots;         // softmaxes, each of other keys

  // The results of all states, in shared memory.
  struct States {
    float outs[kStates][kSpread * kOwn];
    float tops[kStates], sums[kStates];
  };

  const int part, state;
  Bits query;
  float score[kBatch], most;
  float out[kOwn] = {};
  Softmax softmax;

  XPUD_DEVICE_MEMBER Row(int part, int state) : part(part), state(state) {}

  XPUD_DEVICE_MEMBER int KeyOf(int at, int i) const { return at + i * kStates + state; }

  // Computes a batch's scores, and their largest. `mask` is the place of the query's row in the call's mask.
  XPUD_DEVICE_MEMBER void AddScores(const AttentionArguments& p, const Bits (&keys)[kBatch], int64_t mask,
                                    int at, int end, float factor) {
    most = softmax.top;
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      float dot = 0;
#pragma unroll
      for (int e = 0; e < kOwn; ++e)
        dot = __builtin_fmaf(Element(T{}, query, e), Element(T{}, keys[i], e), dot);
#pragma unroll
      for (int lanes = 1; lanes < kSpread; lanes *= 2) dot += Across(dot, lanes);
      score[i] = dot * factor;
      AddMask(p, mask, KeyOf(at, i), end, score[i]);
      most = Max(most, score[i]);
    }
  }
  // Adds the call's mask, or removes the score.
  static XPUD_DEVICE_MEMBER void AddMask(const AttentionArguments& p, int64_t mask, int key, int end,
                                         float& score) {
    if (key >= end) {
      score = -__builtin_inff();
    } else if (p.mask_kind == MaskKind::kAdded) {
      score += MaskUnits(Load(static_cast<const T*>(p.mask)[mask + key * p.mask_strides.column]));
    } else if (p.mask_kind == MaskKind::kBool) {
      if (static_cast<const uint8_t*>(p.mask)[mask + key * p.mask_strides.column] == 0)
        score = -__builtin_inff();
    }
  }

  // Turns scores into weights, and adds the weighted values. Out shrinks.
  XPUD_DEVICE_MEMBER void AddValues(const Bits (&values)[kBatch]) {
    const auto [base, shrink] = softmax.Raise(most);
    softmax.sum *= shrink;
#pragma unroll
    for (int e = 0; e < kOwn; ++e) out[e] *= shrink;
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      const float weight = Exp2(score[i] - base);
      softmax.sum += weight;
#pragma unroll
      for (int e = 0; e < kOwn; ++e) out[e] = __builtin_fmaf(weight, Element(T{}, values[i], e), out[e]);
    }
  }

  XPUD_DEVICE_MEMBER void StoreState(States& states) const {
#pragma unroll
    for (int e = 0; e < kOwn; ++e) states.outs[state][part * kOwn + e] = out[e];
    if (part == 0) {
      states.tops[state] = softmax.top;
      states.sums[state] = softmax.sum;
    }
  }

  // Merges all states. Lanes share the columns.
  static XPUD_DEVICE_MEMBER void End(const AttentionArguments& p, const Block& block, int value_depth,
                                     const States& states) {
    float most = states.tops[0];
#pragma unroll
    for (int s = 1; s < kStates; ++s) most = Max(most, states.tops[s]);
    const float base = BaseOf(most);
    float total = 0;
#pragma unroll
    for (int s = 0; s < kStates; ++s) total += states.sums[s] * Exp2(states.tops[s] - base);
    const float inverse = InverseOf(total);
    const Result<T> to = ResultOf<T>(p, block.b, block.h, block.first);
    for (int c = Lane(); c < value_depth; c += kWarps * 32) {
      float value = 0;
#pragma unroll
      for (int s = 0; s < kStates; ++s)
        value = __builtin_fmaf(states.outs[s][c], Exp2(states.tops[s] - base), value);
      if (to.part != nullptr)
        to.part[c] = value * inverse;
      else
        Store(to.out[c], value * inverse);
    }
    if (Lane() == 0) StoreLogsumexp(to, most, total);
  }
};

template <int kSpread>
XPUD_DEVICE void AttendOne(const AttentionArguments& p) {
  using Own = Row<kSpread>;
  XPUD_SHARED typename Own::States states;
  const Block block = BlockOfOne(p);
  Own row(Lane() % 32 % kSpread, Lane() / kSpread);
  const Heads<T> heads = HeadsOf<T>(p, block);
  const int column = row.part * kOwn;
  const T* const q = heads.q + block.first * p.q_strides.row + column;
  const T *const k = heads.k + column, *const v = heads.v + column;
  const bool in_depth = column < heads.depth, in_values = column < heads.value_depth;
  const int64_t mask =
      block.b * p.mask_strides.batch + block.h * p.mask_strides.head + block.first * p.mask_strides.row;
  const KeyRange range = RangeOf(p, block.first + 1);
  const float factor = static_cast<float>(p.scale) * kLog2E;

  constexpr Bits kZero = {};
  row.query = in_depth ? LoadBits(q) : kZero;
  for (int at = range.begin; at < range.end; at += Own::kKeys) {
    Bits keys[Own::kBatch], values[Own::kBatch];
#pragma unroll
    for (int i = 0; i < Own::kBatch; ++i) {
      const int key = row.KeyOf(at, i);
      keys[i] = key < range.end && in_depth ? LoadBits(k + key * p.k_strides.row) : kZero;
    }
#pragma unroll
    for (int i = 0; i < Own::kBatch; ++i) {
      const int key = row.KeyOf(at, i);
      values[i] = key < range.end && in_values ? LoadBits(v + key * p.v_strides.row) : kZero;
    }
    row.AddScores(p, keys, mask, at, range.end, factor);
    row.AddValues(values);
  }
  row.StoreState(states);
  Synchronize();
  Own::End(p, block, heads.value_depth, states);
}

}  // namespace xpud::gpu

using namespace xpud::gpu;

XPUD_KERNEL(128) attention_one_32(const AttentionArguments p) { AttendOne<32 / kOwn>(p); }
XPUD_KERNEL(128) attention_one_64(const AttentionArguments p) { AttendOne<64 / kOwn>(p); }
XPUD_KERNEL(128) attention_one_128(const AttentionArguments p) { AttendOne<128 / kOwn>(p); }
