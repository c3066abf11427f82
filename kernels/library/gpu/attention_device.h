// Shared by the kernels of attention_*.cu. Device code only.
#pragma once

#include "kernels/library/gpu/attention_arguments.h"
#include "kernels/library/gpu/device.h"
#include "kernels/library/gpu/position.h"

namespace xpud::gpu {

constexpr float kLog2E = 1.4426950408889634f;
constexpr float kLowestUnits = -__FLT_MAX__ / 2;

XPUD_DEVICE uint32_t SharedAddress(const void* p) {
  return static_cast<uint32_t>(reinterpret_cast<uintptr_t>((__attribute__((address_space(3))) const void*)p));
}

// Copies 16 bytes of global memory to shared memory, asynchronously; writes zeros if they are not valid.
XPUD_DEVICE void CopyChunk(uint32_t to, const void* from, bool valid) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(valid ? 16 : 0)
               : "memory");
}
XPUD_DEVICE void CommitCopies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Waits for all groups of copies except the kLeft last committed.
template <int kLeft>
XPUD_DEVICE void WaitForCopies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kLeft) : "memory");
}

XPUD_DEVICE float Exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
XPUD_DEVICE float Log2(float x) {
  float y;
  asm("lg2.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
XPUD_DEVICE float Max(float a, float b) { return __builtin_fmaxf(a, b); }
// Returns an added mask in units of log 2. A finite one stays finite, also after adding a score, so a query
// for which all keys have the lowest number attends to all of them.
XPUD_DEVICE float MaskUnits(float mask) {
  const float units = mask * kLog2E;
  return units < kLowestUnits && mask > -__builtin_inff() ? kLowestUnits : units;
}
XPUD_DEVICE float Across(float x, int lanes) {
  return __builtin_bit_cast(float, __nvvm_shfl_sync_bfly_i32(-1, __builtin_bit_cast(int, x), lanes, 31));
}

// The keys of a group, whose queries attend to no key from `beyond` on.
struct KeyRange {
  int begin, end;
};
// If not kCut, `parts` is not set.
template <bool kCut = true>
XPUD_DEVICE KeyRange RangeOf(const AttentionArguments& p, int64_t beyond) {
  const int64_t all = p.causal ? Least(p.keys, beyond) : p.keys;
  if (!kCut || p.parts == nullptr) return {0, static_cast<int>(all)};
  const int64_t begin = GroupY() * p.keys_per_part;
  return {static_cast<int>(begin), static_cast<int>(Least(all, begin + p.keys_per_part))};
}

// The destination of a query's result: `out`, or `part` in f32 if keys are cut.
template <typename T>
struct Result {
  T* out;
  float* part;       // or nullptr
  float* logsumexp;  // or nullptr; for a part in units of log 2, and -inf if it attended to no key
};

template <typename T, bool kCut = true>
XPUD_DEVICE Result<T> ResultOf(const AttentionArguments& p, int64_t b, int64_t h, int64_t row) {
  T* const out =
      static_cast<T*>(p.out) + b * p.out_strides.batch + h * p.out_strides.head + row * p.out_strides.row;
  if (!kCut || p.parts == nullptr) {
    const HeadStrides& s = p.logsumexp_strides;
    return {out, nullptr,
            p.logsumexp == nullptr ? nullptr : p.logsumexp + b * s.batch + h * s.head + row * s.row};
  }
  const int64_t rows = p.batch * p.heads * p.queries,
                at = GroupY() * rows + (b * p.heads + h) * p.queries + row;
  return {out, p.parts + at * p.value_depth, p.parts + GroupsY() * rows * p.value_depth + at};
}

// `top` is in units of log 2.
template <typename T>
XPUD_DEVICE void StoreLogsumexp(const Result<T>& to, float top, float sum) {
  if (to.logsumexp == nullptr) return;
  const float units = sum == 0 ? -__builtin_inff() : top + Log2(sum);
  *to.logsumexp = to.part != nullptr ? units : sum == 0 ? 0.0f : units * (1 / kLog2E);
}

}  // namespace xpud::gpu
