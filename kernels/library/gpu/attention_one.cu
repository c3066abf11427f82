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

// kSpread lanes share a key; each has kOwn of its columns.
template <int kSpread>
XPUD_DEVICE void AttendOne(const AttentionArguments& p) {
  constexpr int kSlots = 32 / kSpread;             // keys of a warp at once
  constexpr int kBatch = kSpread < 32 ? 4 : 8;     // keys whose loads are in flight together
  constexpr int kKeys = kWarps * kSlots * kBatch;  // of a group
  constexpr int kStates = kWarps * kSlots;
  XPUD_SHARED float outs[kStates][kSpread * kOwn];
  XPUD_SHARED float tops[kStates], sums[kStates];
  const int lane = Lane() % 32, part = lane % kSpread, state = Lane() / kSpread;
  const auto [row, h, b] = PositionOf(GroupX(), p.queries, p.heads);
  const int64_t kh = Quotient(h, p.heads_per_key_head);
  const int column = part * kOwn, depth = static_cast<int>(p.depth),
            value_depth = static_cast<int>(p.value_depth);
  const bool in_depth = column < depth, in_values = column < value_depth;
  const T* const q = static_cast<const T*>(p.q) + b * p.q_strides.batch + h * p.q_strides.head +
                     row * p.q_strides.row + column;
  const T* const k = static_cast<const T*>(p.k) + b * p.k_strides.batch + kh * p.k_strides.head + column;
  const T* const v = static_cast<const T*>(p.v) + b * p.v_strides.batch + kh * p.v_strides.head + column;
  const int64_t mask = b * p.mask_strides.batch + h * p.mask_strides.head + row * p.mask_strides.row;
  const KeyRange range = RangeOf(p, row + 1);
  const float factor = static_cast<float>(p.scale) * kLog2E;

  constexpr Bits kZero = {};
  const Bits query = in_depth ? LoadBits(q) : kZero;
  float out[kOwn] = {}, top = -__builtin_inff(), sum = 0;
  for (int at = range.begin; at < range.end; at += kKeys) {
    Bits keys[kBatch], values[kBatch];
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      const int key = at + i * kStates + state;
      keys[i] = key < range.end && in_depth ? LoadBits(k + key * p.k_strides.row) : kZero;
    }
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      const int key = at + i * kStates + state;
      values[i] = key < range.end && in_values ? LoadBits(v + key * p.v_strides.row) : kZero;
    }
    float score[kBatch], most = top;
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      const int key = at + i * kStates + state;
      float dot = 0;
#pragma unroll
      for (int e = 0; e < kOwn; ++e)
        dot = __builtin_fmaf(Element(T{}, query, e), Element(T{}, keys[i], e), dot);
#pragma unroll
      for (int lanes = 1; lanes < kSpread; lanes *= 2) dot += Across(dot, lanes);
      score[i] = dot * factor;
      if (key >= range.end) {
        score[i] = -__builtin_inff();
      } else if (p.mask_kind == MaskKind::kAdded) {
        score[i] += MaskUnits(Load(static_cast<const T*>(p.mask)[mask + key * p.mask_strides.column]));
      } else if (p.mask_kind == MaskKind::kBool) {
        if (static_cast<const uint8_t*>(p.mask)[mask + key * p.mask_strides.column] == 0)
          score[i] = -__builtin_inff();
      }
      most = Max(most, score[i]);
    }
    const float base = most == -__builtin_inff() ? 0.0f : most;
    const float shrink = Exp2(top - base);
    top = most;
    sum *= shrink;
#pragma unroll
    for (int e = 0; e < kOwn; ++e) out[e] *= shrink;
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      const float weight = Exp2(score[i] - base);
      sum += weight;
#pragma unroll
      for (int e = 0; e < kOwn; ++e) out[e] = __builtin_fmaf(weight, Element(T{}, values[i], e), out[e]);
    }
  }

#pragma unroll
  for (int e = 0; e < kOwn; ++e) outs[state][column + e] = out[e];
  if (part == 0) {
    tops[state] = top;
    sums[state] = sum;
  }
  Synchronize();
  float most = tops[0];
#pragma unroll
  for (int s = 1; s < kStates; ++s) most = Max(most, tops[s]);
  const float base = most == -__builtin_inff() ? 0.0f : most;
  float total = 0;
#pragma unroll
  for (int s = 0; s < kStates; ++s) total += sums[s] * Exp2(tops[s] - base);
  const float inverse = total == 0 ? 0.0f : 1.0f / total;
  const Result<T> to = ResultOf<T>(p, b, h, row);
  for (int c = Lane(); c < value_depth; c += kWarps * 32) {
    float value = 0;
#pragma unroll
    for (int s = 0; s < kStates; ++s) value = __builtin_fmaf(outs[s][c], Exp2(tops[s] - base), value);
    if (to.part != nullptr)
      to.part[c] = value * inverse;
    else
      Store(to.out[c], value * inverse);
  }
  if (Lane() == 0) StoreLogsumexp(to, most, total);
}

}  // namespace xpud::gpu

using namespace xpud::gpu;

XPUD_KERNEL(128) attention_one_32(const AttentionArguments p) { AttendOne<32 / kOwn>(p); }
XPUD_KERNEL(128) attention_one_64(const AttentionArguments p) { AttendOne<64 / kOwn>(p); }
XPUD_KERNEL(128) attention_one_128(const AttentionArguments p) { AttendOne<128 / kOwn>(p); }
