// Hopper's tensor instructions, for a team of 4 warps. They run asynchronously, read one factor from shared
// memory, and add to 64 rows in the team's registers, with the lane layout of mma.m16n8k16. Device code only.
#pragma once

#include "kernels/library/gpu/attention_tensor.h"

namespace xpud::gpu {

#define XPUD_4(x, i) "+f"(x[i]), "+f"(x[i + 1]), "+f"(x[i + 2]), "+f"(x[i + 3])
#define XPUD_8(x, i) XPUD_4(x, i), XPUD_4(x, i + 4)
#define XPUD_32(x, i) XPUD_8(x, i), XPUD_8(x, i + 8), XPUD_8(x, i + 16), XPUD_8(x, i + 24)
#define XPUD_LANE_32(x) XPUD_32(x, 0)
#define XPUD_LANE_64(x) XPUD_32(x, 0), XPUD_32(x, 32)
#define XPUD_REGISTERS_32                                                                       \
  "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, " \
  "%20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}"
#define XPUD_REGISTERS_64                                                                       \
  "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, " \
  "%20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, "  \
  "%38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, "  \
  "%56, %57, %58, %59, %60, %61, %62, %63}"

XPUD_DEVICE void Fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
XPUD_DEVICE void Commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

// For accumulators of 64 rows and `columns`, with `registers` in each lane. WaitFor waits for all products
// except the kLeft committed last; only then may `x` be read. Multiply begins c = a b, or c += a b if `adds`.
// a has 16 columns, and may be in shared memory too. Transposed: b's rows are contiguous.
#define XPUD_ACCUMULATOR(registers, columns, a0, a1, a2, a3, b0, adds0, transposes)           \
  template <int kLeft>                                                                        \
  XPUD_DEVICE void WaitFor(float (&x)[registers]) {                                           \
    asm volatile("wgmma.wait_group.sync.aligned " a0 ";"                                      \
                 : XPUD_LANE_##registers(x)                                                   \
                 : "n"(kLeft)                                                                 \
                 : "memory");                                                                 \
  }                                                                                           \
  template <typename T, int kTranspose>                                                       \
  XPUD_DEVICE void Multiply(float (&c)[registers], const Fragment& a, uint64_t b, int adds) { \
    if constexpr (__is_same(T, BFloat16))                                                     \
      XPUD_WGMMA("bf16", registers, columns, a0, a1, a2, a3, b0, adds0, transposes);          \
    else                                                                                      \
      XPUD_WGMMA("f16", registers, columns, a0, a1, a2, a3, b0, adds0, transposes);           \
  }                                                                                           \
  template <typename T>                                                                       \
  XPUD_DEVICE void Multiply(float (&c)[registers], uint64_t a, uint64_t b, int adds) {        \
    if constexpr (__is_same(T, BFloat16))                                                     \
      XPUD_WGMMA_SHARED("bf16", registers, columns, a0, a1, a2);                              \
    else                                                                                      \
      XPUD_WGMMA_SHARED("f16", registers, columns, a0, a1, a2);                               \
  }
#define XPUD_WGMMA_SHARED(type, registers, columns, a0, b0, adds0)                                           \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " adds0 ", 0;\nwgmma.mma_async.sync.aligned.m64n" columns   \
               "k16.f32." type "." type " " XPUD_REGISTERS_##registers ", " a0 ", " b0 ", p, 1, 1, 0, 0;\n}" \
               : XPUD_LANE_##registers(c)                                                                    \
               : "l"(a), "l"(b), "r"(adds))
#define XPUD_WGMMA(type, registers, columns, a0, a1, a2, a3, b0, adds0, transposes)                        \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " adds0 ", 0;\nwgmma.mma_async.sync.aligned.m64n" columns \
               "k16.f32." type "." type " " XPUD_REGISTERS_##registers                                     \
               ", {" a0 ", " a1 ", " a2 ", " a3 "}, " b0 ", p, 1, 1, " transposes ";\n}"                   \
               : XPUD_LANE_##registers(c)                                                                  \
               : "r"(a.x[0]), "r"(a.x[1]), "r"(a.x[2]), "r"(a.x[3]), "l"(b), "r"(adds), "n"(kTranspose))
XPUD_ACCUMULATOR(32, "64", "%32", "%33", "%34", "%35", "%36", "%37", "%38")
XPUD_ACCUMULATOR(64, "128", "%64", "%65", "%66", "%67", "%68", "%69", "%70")

// Describes shared memory for wgmma: swizzled by 128 bytes, each 8 rows 1024 bytes apart, slabs of 64 columns
// `slab_bytes` apart.
XPUD_DEVICE uint64_t DescriptorOf(uint32_t at, uint64_t slab_bytes) {
  return uint64_t{1} << 62 | uint64_t{1024 / 16} << 32 | slab_bytes / 16 << 16 | (at & 0x3ffff) >> 4;
}

// Returns the place of 16 bytes of a row in a tile of such slabs, swizzled.
XPUD_DEVICE uint32_t ChunkAt(uint32_t tile, int slab_bytes, int row, int chunk) {
  return tile + chunk / 8 * slab_bytes + row * 128 + (chunk % 8 ^ row % 8) * 16;
}

// Begins score = query k^T for a tile of k.
template <typename T, int kSlabBytes, int kScores, int kSteps>
XPUD_DEVICE void BeginScores(float (&score)[kScores], const Fragment (&query)[kSteps], uint32_t k_tile) {
  Fence();
#pragma unroll
  for (int d = 0; d < kSteps; ++d)
    Multiply<T, 0>(score, query[d], DescriptorOf(k_tile + d / 4 * kSlabBytes + d % 4 * 32, kSlabBytes),
                   d != 0);
  Commit();
}

// The same with queries in shared memory and a depth of kDepth.
template <typename T, int kQuerySlabBytes, int kSlabBytes, int kDepth, int kScores>
XPUD_DEVICE void BeginScores(float (&score)[kScores], uint32_t queries, uint32_t k_tile) {
  Fence();
#pragma unroll
  for (int d = 0; d < kDepth / 16; ++d)
    Multiply<T>(score, DescriptorOf(queries + d / 4 * kQuerySlabBytes + d % 4 * 32, kQuerySlabBytes),
                DescriptorOf(k_tile + d / 4 * kSlabBytes + d % 4 * 32, kSlabBytes), d != 0);
  Commit();
}

// Begins out += weight v for a tile of v.
template <typename T, int kSlabBytes, int kOuts, int kSteps>
XPUD_DEVICE void BeginOut(float (&out)[kOuts], const Fragment (&weight)[kSteps], uint32_t v_tile) {
  Fence();
#pragma unroll
  for (int n = 0; n < kSteps; ++n)
    Multiply<T, 1>(out, weight[n], DescriptorOf(v_tile + n * 2048, kSlabBytes), 1);
  Commit();
}

// The rest is for a lane's part of 64 rows of accumulators: two rows, 8 apart, and pairs of adjacent columns.
// `row` is the first.

// Removes the scores of keys to which queries do not attend, in a tile of keys from `at` on.
template <int kScores>
XPUD_DEVICE void HideScores(const AttentionArguments& p, int row, int at, int end, float (&score)[kScores]) {
  const int lane = Lane() % 32;
#pragma unroll
  for (int i = 0; i < kScores; ++i) {
    const int key = at + i / 4 * 8 + lane % 4 * 2 + i % 2;
    if (IsHidden(p, row + i / 2 % 2 * 8, key, end)) score[i] = -__builtin_inff();
  }
}

// Rounds weights to left factors.
template <typename T, int kScores>
XPUD_DEVICE void Pack(const float (&from)[kScores], Fragment (&to)[kScores / 8]) {
#pragma unroll
  for (int n = 0; n < kScores / 8; ++n)
#pragma unroll
    for (int i = 0; i < 4; ++i) to[n].x[i] = Pair<T>(from[n * 8 + i * 2], from[n * 8 + i * 2 + 1]);
}

// Scales sums of rows, each by the factor of its row.
template <int kSums>
XPUD_DEVICE void Shrink(float (&sum)[kSums], const float (&shrink)[2]) {
#pragma unroll
  for (int i = 0; i < kSums; ++i) sum[i] *= shrink[i / 2 % 2];
}

}  // namespace xpud::gpu
