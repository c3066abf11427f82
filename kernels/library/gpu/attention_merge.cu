// Puts together what groups found that shared out a query's keys. Compiled to PTX once for each XPUD_ELEMENT.
#include "kernels/library/gpu/attention_arguments.h"
#include "kernels/library/gpu/attention_device.h"
#include "kernels/library/gpu/device.h"

using namespace xpud::gpu;

// A warp a query; its lanes share out the columns.
XPUD_KERNEL(128) attention_merge(const AttentionArguments p, int32_t parts) {
  using T = XPUD_ELEMENT;
  const int64_t rows = p.batch * p.heads * p.queries;
  const int64_t at = GroupX() * (AttentionArguments::kMergeLanes / 32) + Lane() / 32;
  if (at >= rows) return;
  const float* const units = p.parts + parts * rows * p.value_depth + at;
  float top = -__builtin_inff();
  for (int part = 0; part < parts; ++part) top = Max(top, units[part * rows]);
  const float base = top == -__builtin_inff() ? 0.0f : top;
  float sum = 0;
  for (int part = 0; part < parts; ++part) sum += Exp2(units[part * rows] - base);
  const float inverse = sum == 0 ? 0.0f : 1.0f / sum;
  const int64_t row = at % p.queries, h = at / p.queries % p.heads, b = at / p.queries / p.heads;
  T* const to = static_cast<T*>(p.out) + b * p.out_strides.batch + h * p.out_strides.head +
                row * p.out_strides.row;
  for (int64_t column = Lane() % 32; column < p.value_depth; column += 32) {
    float value = 0;
    for (int part = 0; part < parts; ++part)
      value = __builtin_fmaf(Exp2(units[part * rows] - base),
                             p.parts[(part * rows + at) * p.value_depth + column], value);
    Store(to[column * p.out_strides.column], value * inverse);
  }
  if (p.logsumexp == nullptr || Lane() % 32 != 0) return;
  const HeadStrides& s = p.logsumexp_strides;
  p.logsumexp[b * s.batch + h * s.head + row * s.row] = sum == 0 ? 0.0f : (top + Log2(sum)) * (1 / kLog2E);
}
