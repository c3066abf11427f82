// Shared by the attention kernels that compute by multiply-add in f32 or f64, for any layout. Device code
// only. REQUIRES: kernels/compiler/math.c is included before, as device code.
#pragma once

#include "kernels/library/gpu/attention_arguments.h"
#include "kernels/library/gpu/attention_device.h"
#include "kernels/library/gpu/attention_dropout.h"
#include "kernels/library/gpu/device.h"
#include "kernels/library/gpu/position.h"

namespace xpud::gpu {

XPUD_DEVICE float Exp(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x * 1.4426950408889634f));
  return y;
}
XPUD_DEVICE double Exp(double x) { return xpud_exp_f64(x); }
XPUD_DEVICE float Log(float x) { return xpud_log_f32(x); }
XPUD_DEVICE double Log(double x) { return xpud_log_f64(x); }

XPUD_DEVICE double Across(double x, int lanes) {
  const uint64_t bits = __builtin_bit_cast(uint64_t, x);
  const uint32_t low = __nvvm_shfl_sync_bfly_i32(-1, static_cast<int>(bits), lanes, 31),
                 high = __nvvm_shfl_sync_bfly_i32(-1, static_cast<int>(bits >> 32), lanes, 31);
  return __builtin_bit_cast(double, static_cast<uint64_t>(high) << 32 | low);
}

// As Softmax, for scores that are not in units of log 2.
template <typename W>
struct NaturalSoftmax {
  W top = -__builtin_inf(), sum = 0;

  // REQUIRES: `most` is at least `top`. The caller shrinks `sum`.
  XPUD_DEVICE_MEMBER Change<W> Raise(W most) {
    const W base = BaseOf(most), shrink = Exp(top - base);
    top = most;
    return {base, shrink};
  }
};

// Returns the score of a key after applying the mask.
template <typename T, typename W>
XPUD_DEVICE W Masked(const AttentionArguments& p, int64_t b, int64_t h, int64_t row, int64_t key, W score) {
  constexpr W kBarred = -__builtin_inf();
  if (p.causal && key > row) return kBarred;
  if (p.mask_kind == MaskKind::kNone) return score;
  const int64_t place = b * p.mask_strides.batch + h * p.mask_strides.head + row * p.mask_strides.row +
                        key * p.mask_strides.column;
  if (p.mask_kind == MaskKind::kAdded) return score + Load(static_cast<const T*>(p.mask)[place]);
  return static_cast<const uint8_t*>(p.mask)[place] != 0 ? score : kBarred;
}

}  // namespace xpud::gpu
