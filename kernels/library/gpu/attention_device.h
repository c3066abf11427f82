// Shared by the kernels of attention_*.cu. Device code only.
//
// A forward kernel is a function Attend..., which goes through a group's tiles of keys, and a struct Row or
// Rows: what a lane keeps of its queries. Their parts have the same names, and each kernel has its own
// manner:
//   BlockOf, HeadsOf, RangeOf  the group's queries, their matrices, and its keys
//   ReadQueries                query
//   AddScores                  score = query k'
//   AddMask                    applies the call's mask, and `scale` if scores get it before they are weighed
//   Hide                       removes the scores of keys past the end, and of later keys if causal
//   Weigh                      turns scores into weights, and updates the row's Softmax; out shrinks
//   Drop                       drops weights
//   AddValues                  out += weight v
//   End                        stores out / sum, and logsumexp
// Hopper's tensor instructions are asynchronous: there AddScores is BeginScores and a wait, and AddValues is
// BeginOut and a wait. Scores are in units of log 2, except in attention_plain.cu.
//
// The machine code depends on how these parts are written: compare it after a change. A bool as a member, or
// a condition of several tests as a function, has cost registers.
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

template <typename T>
XPUD_DEVICE const T* HeadOf(const void* data, const HeadStrides& s, int64_t b, int64_t h) {
  return static_cast<const T*>(data) + b * s.batch + h * s.head;
}

// A group's queries: those of a head from `first` on. `kh` is the head of their keys and values.
struct Block {
  int64_t first, h, b, kh;
};
// Blocks have `rows` queries. If causal, the last of a head come first, as they take longest.
XPUD_DEVICE Block BlockOf(const AttentionArguments& p, int64_t rows) {
  const int64_t blocks = (p.queries + rows - 1) / rows;
  const auto [block, h, b] = PositionOf(GroupX(), blocks, p.heads);
  return {(p.causal ? blocks - 1 - block : block) * rows, h, b, Quotient(h, p.heads_per_key_head)};
}
// A block of one query; the first come first.
XPUD_DEVICE Block BlockOfOne(const AttentionArguments& p) {
  const auto [row, h, b] = PositionOf(GroupX(), p.queries, p.heads);
  return {row, h, b, Quotient(h, p.heads_per_key_head)};
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

// What a block reads: the matrices of its heads, from their first rows on.
template <typename T>
struct Heads {
  const T *q, *k, *v;
  int depth, value_depth;
};
template <typename T>
XPUD_DEVICE Heads<T> HeadsOf(const AttentionArguments& p, const Block& block) {
  return {HeadOf<T>(p.q, p.q_strides, block.b, block.h), HeadOf<T>(p.k, p.k_strides, block.b, block.kh),
          HeadOf<T>(p.v, p.v_strides, block.b, block.kh), static_cast<int>(p.depth),
          static_cast<int>(p.value_depth)};
}

// Returns true if the query does not attend to the key, in a range of keys up to `end`.
XPUD_DEVICE bool IsHidden(const AttentionArguments& p, int row, int key, int end) {
  return key >= end || (p.causal && key > row);
}

// Returns what weights are relative to if the largest score is `most`: also finite if all keys are hidden.
template <typename W>
XPUD_DEVICE W BaseOf(W most) {
  return most == W(-__builtin_inf()) ? W(0) : most;
}

// What a larger maximum changes: new weights are exp(score - base), and former sums shrink by a factor.
template <typename W>
struct Change {
  W base, shrink;
};

// A row's softmax so far: the largest score, and the sum of the weights relative to it.
struct Softmax {
  float top = -__builtin_inff(), sum = 0;

  // REQUIRES: `most` is at least `top`. The caller shrinks `sum`.
  XPUD_DEVICE_MEMBER Change<float> Raise(float most) {
    const float base = BaseOf(most), shrink = Exp2(top - base);
    top = most;
    return {base, shrink};
  }
};

// Returns the factor that makes weights of this sum a softmax. A query that attends to no key gets 0.
template <typename W>
XPUD_DEVICE W InverseOf(W sum) {
  return sum == 0 ? W(0) : W(1) / sum;
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
