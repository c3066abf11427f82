// Merges the results of groups that shared a query's keys. Compiled to PTX once for each XPUD_ELEMENT.
#include "kernels/library/gpu/attention_arguments.h"
#include "kernels/library/gpu/attention_device.h"
#include "kernels/library/gpu/device.h"

namespace xpud::gpu {

using T = XPUD_ELEMENT;
constexpr int kLanes = AttentionArguments::kMergeLanes;
constexpr int kMaxParts = AttentionArguments::kMaxParts;
constexpr int kMaxDepth = 128;

// Returns the largest, or the sum, of all lanes' values, to all of them.
template <bool kSum>
XPUD_DEVICE float OverLanes(float x, float* memory) {
  memory[Lane()] = x;
  for (int lanes = kLanes / 2; lanes > 0; lanes /= 2) {
    Synchronize();
    if (Lane() < lanes) {
      const float other = memory[Lane() + lanes];
      memory[Lane()] = kSum ? memory[Lane()] + other : Max(memory[Lane()], other);
    }
  }
  Synchronize();
  const float all = memory[0];
  Synchronize();
  return all;
}

// A group takes one query. Its lanes share the parts to compute their weights, and then share columns and
// parts to add them up.
XPUD_DEVICE void Merge(const AttentionArguments& p, int parts) {
  XPUD_SHARED float weights[kMaxParts];
  XPUD_SHARED float memory[kLanes];
  const int64_t rows = p.batch * p.heads * p.queries, at = GroupX();
  const float* const units = p.parts + parts * rows * p.value_depth + at;
  const int depth = static_cast<int>(p.value_depth);

  float most = -__builtin_inff();
  for (int part = Lane(); part < parts; part += kLanes) {
    weights[part] = units[part * rows];
    most = Max(most, weights[part]);
  }
  const float top = OverLanes<false>(most, memory), base = BaseOf(top);
  float weight = 0;
  for (int part = Lane(); part < parts; part += kLanes) weight += weights[part] = Exp2(weights[part] - base);
  const float sum = OverLanes<true>(weight, memory), inverse = InverseOf(sum);

  const auto [row, h, b] = PositionOf(at, p.queries, p.heads);
  T* const to = const_cast<T*>(HeadOf<T>(p.out, p.out_strides, b, h)) + row * p.out_strides.row;
  // `width` lanes take the columns; there are as many partial sums as runs of `width` lanes.
  const int width = depth <= 32 ? 32 : depth <= 64 ? 64 : kMaxDepth, column = Lane() % width;
  float value = 0;
  if (column < depth) {
#pragma unroll 8
    for (int part = Lane() / width; part < parts; part += kLanes / width)
      value = __builtin_fmaf(weights[part], p.parts[(part * rows + at) * depth + column], value);
  }
  memory[Lane()] = value;
  Synchronize();
  if (Lane() < depth) {
    for (int other = Lane() + width; other < kLanes; other += width) value += memory[other];
    Store(to[column * p.out_strides.column], value * inverse);
  }
  if (p.logsumexp == nullptr || Lane() != 0) return;
  const HeadStrides& s = p.logsumexp_strides;
  p.logsumexp[b * s.batch + h * s.head + row * s.row] = sum == 0 ? 0.0f : (top + Log2(sum)) * (1 / kLog2E);
}

}  // namespace xpud::gpu

using namespace xpud::gpu;

XPUD_KERNEL(128) attention_merge(const AttentionArguments p, int32_t parts) { Merge(p, parts); }
