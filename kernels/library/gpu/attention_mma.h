// Tiles of 16-bit rows in shared memory, and products of them by mma.m16n8k16, for the kernels of attention
// that use it. XPUD_ELEMENT and XPUD_DEPTH are those of the module. Device code only.
//
// A warp's lane has, of a product's 16 x 8 results c: row lane / 4, columns lane % 4 * 2 and the next (c[0],
// c[1]), and the same of row lane / 4 + 8 (c[2], c[3]). Two adjacent blocks of 8 columns, in pairs, are the
// left factor (16 x 16) of a further product.
#pragma once

#include "kernels/library/gpu/attention_device.h"
#include "kernels/library/gpu/attention_tensor.h"

namespace xpud::gpu {

using T = XPUD_ELEMENT;
constexpr int kDepth = XPUD_DEPTH;
constexpr int kWarps = 4;
constexpr int kChunks = kDepth / 8;  // of 16 bytes in a row
constexpr bool kIsBFloat16 = __is_same(T, BFloat16);

// Returns the place of a chunk in a tile of rows. The same chunk of 8 adjacent rows is in different banks.
XPUD_DEVICE int Place(int row, int chunk) {
  const int turned = kChunks == 4 ? chunk ^ ((row >> 1) & 3) : chunk ^ (row & 7);
  return (row * kChunks + turned) * 8;
}

XPUD_DEVICE Fragment LoadTransposed(uint32_t at) {
  Fragment f;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(f.x[0]), "=r"(f.x[1]), "=r"(f.x[2]), "=r"(f.x[3])
               : "r"(at)
               : "memory");
  return f;
}

XPUD_DEVICE void MultiplyAdd(float (&c)[4], const Fragment& a, uint32_t b0, uint32_t b1) {
  if constexpr (kIsBFloat16)
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a.x[0]), "r"(a.x[1]), "r"(a.x[2]), "r"(a.x[3]), "r"(b0), "r"(b1));
  else
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a.x[0]), "r"(a.x[1]), "r"(a.x[2]), "r"(a.x[3]), "r"(b0), "r"(b1));
}

// Begins to copy kRows rows of `size`, from row `first` on. Rows outside become 0.
template <int kRows>
XPUD_DEVICE void BeginTile(T* tile, const T* from, int64_t stride, int64_t first, int64_t size, int depth) {
  constexpr int kLanes = kWarps * 32;
  static_assert(kRows * kChunks % kLanes == 0);
  const uint32_t base = SharedAddress(tile);
#pragma unroll
  for (int step = 0; step < kRows * kChunks / kLanes; ++step) {
    const int i = step * kLanes + Lane(), row = i / kChunks, chunk = i % kChunks;
    const bool valid = first + row < size && chunk * 8 < depth;
    CopyChunk(base + 2 * Place(row, chunk), valid ? from + (first + row) * stride + chunk * 8 : from, valid);
  }
}

// The left factor of rows [row, row + 16) and columns [column * 16, column * 16 + 16) of a tile.
XPUD_DEVICE Fragment LoadLeft(const T* tile, int row, int column) {
  const int lane = Lane() % 32;
  return LoadMatrices(SharedAddress(tile + Place(row + lane % 16, column * 2 + lane / 16)));
}
// The right factors of two blocks of 8 rows, from `row` on, which are columns of the product: x[0], x[1], and
// x[2], x[3].
XPUD_DEVICE Fragment LoadRight(const T* tile, int row, int column) {
  const int lane = Lane() % 32;
  return LoadMatrices(SharedAddress(tile + Place(row + lane % 8 + lane / 16 * 8, column * 2 + lane / 8 % 2)));
}
// The right factors of 16 rows, which are summed over, and of two blocks of 8 columns of the product.
XPUD_DEVICE Fragment LoadRightRows(const T* tile, int row, int column) {
  const int lane = Lane() % 32;
  return LoadTransposed(SharedAddress(tile + Place(row + lane % 16, column * 2 + lane / 16)));
}

// Rounds results of two adjacent blocks of 8 columns to a left factor.
XPUD_DEVICE Fragment LeftOf(const float (&even)[4], const float (&odd)[4]) {
  return {{Pair<T>(even[0], even[1]), Pair<T>(even[2], even[3]), Pair<T>(odd[0], odd[1]),
           Pair<T>(odd[2], odd[3])}};
}

}  // namespace xpud::gpu
