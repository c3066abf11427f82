// Hopper's copies of whole tiles. A tensor map describes the layout of a tensor in memory; one lane starts
// the copy of a tile to shared memory. Device code only.
#pragma once

#include "kernels/library/gpu/barrier.h"

namespace xpud::gpu {

constexpr int kTensorMapBytes = 128;

// A [batch, head, row, column] tensor of 16-bit elements for copying. It is copied in rows of 64 columns,
// which are swizzled by 128 bytes in shared memory. Elements outside the tensor become 0.
struct TensorOf16Bits {
  const void* data;
  int64_t columns, rows, heads, batch;
  int64_t row_stride, head_stride, batch_stride;  // in elements; multiples of 8, below 2^39
};

#define XPUD_MAP_SET(field, width, at, value)                                                              \
  asm volatile("tensormap.replace.tile." field ".shared::cta.b1024.b" #width " [%0], %1;" ::"r"(at), value \
               : "memory")
#define XPUD_MAP_SET_OF(field, width, at, dimension, value)                                              \
  asm volatile("tensormap.replace.tile." field ".shared::cta.b1024.b" #width " [%0], %1, %2;" ::"r"(at), \
               "n"(dimension), value                                                                     \
               : "memory")

// Makes the map, for tiles of `rows` rows, at `map` (global memory), using `scratch` (shared memory). Both
// are at multiples of 128. REQUIRES: all lanes of a warp. Afterwards this group may copy with it.
XPUD_DEVICE void MakeTensorMap(const void* map, uint32_t scratch, const TensorOf16Bits& t, int rows) {
  const int lane = Lane() % 32;
  asm volatile("st.shared.b32 [%0], %1;" ::"r"(scratch + lane * 4), "r"(0) : "memory");
  __nvvm_bar_warp_sync(~0u);
  if (lane == 0) {
    XPUD_MAP_SET("global_address", 64, scratch, "l"(t.data));
    XPUD_MAP_SET("rank", 32, scratch, "n"(3));  // number of dimensions minus 1
    XPUD_MAP_SET_OF("box_dim", 32, scratch, 0, "r"(64));
    XPUD_MAP_SET_OF("box_dim", 32, scratch, 1, "r"(rows));
    XPUD_MAP_SET_OF("box_dim", 32, scratch, 2, "r"(1));
    XPUD_MAP_SET_OF("box_dim", 32, scratch, 3, "r"(1));
    XPUD_MAP_SET_OF("global_dim", 32, scratch, 0, "r"(static_cast<int>(t.columns)));
    XPUD_MAP_SET_OF("global_dim", 32, scratch, 1, "r"(static_cast<int>(t.rows)));
    XPUD_MAP_SET_OF("global_dim", 32, scratch, 2, "r"(static_cast<int>(t.heads)));
    XPUD_MAP_SET_OF("global_dim", 32, scratch, 3, "r"(static_cast<int>(t.batch)));
    XPUD_MAP_SET_OF("global_stride", 64, scratch, 0, "l"(t.row_stride * 2));
    XPUD_MAP_SET_OF("global_stride", 64, scratch, 1, "l"(t.head_stride * 2));
    XPUD_MAP_SET_OF("global_stride", 64, scratch, 2, "l"(t.batch_stride * 2));
    XPUD_MAP_SET_OF("element_stride", 32, scratch, 0, "r"(1));
    XPUD_MAP_SET_OF("element_stride", 32, scratch, 1, "r"(1));
    XPUD_MAP_SET_OF("element_stride", 32, scratch, 2, "r"(1));
    XPUD_MAP_SET_OF("element_stride", 32, scratch, 3, "r"(1));
    XPUD_MAP_SET("elemtype", 32, scratch, "n"(1));           // unsigned 16 bits
    XPUD_MAP_SET("interleave_layout", 32, scratch, "n"(0));  // none
    XPUD_MAP_SET("swizzle_mode", 32, scratch, "n"(3));       // 128 bytes
    XPUD_MAP_SET("fill_mode", 32, scratch, "n"(0));          // zeros
  }
  __nvvm_bar_warp_sync(~0u);
  asm volatile(
      "tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%0], [%1], "
      "128;\n"
      "fence.proxy.tensormap::generic.acquire.gpu [%0], 128;" ::"l"(map),
      "r"(scratch)
      : "memory");
}

// Begins to copy the tile whose first element is given to `to`. Its bytes count for the barrier.
XPUD_DEVICE void BeginCopy(const void* map, uint32_t to, uint32_t barrier, int column, int row, int head,
                           int batch) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, "
      "%4, %5}], [%6];" ::"r"(to),
      "l"(map), "r"(column), "r"(row), "r"(head), "r"(batch), "r"(barrier)
      : "memory");
}

// Arrives, and makes the phase also wait for `bytes` of copies.
XPUD_DEVICE void ArriveExpecting(uint32_t barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}

// Call this before copies count for barriers that were initialised here.
XPUD_DEVICE void ShowBarriersToCopies() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

#undef XPUD_MAP_SET
#undef XPUD_MAP_SET_OF

}  // namespace xpud::gpu
