// Synchronisation of the warps of a group on Hopper: barriers in shared memory, and turns. Device code only.
#pragma once

#include "kernels/library/gpu/device.h"

namespace xpud::gpu {

// A barrier's phase alternates between 0 and 1; each phase ends with its `count`th arrival.
XPUD_DEVICE void InitialiseBarrier(uint32_t at, uint32_t count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(at), "r"(count) : "memory");
}
XPUD_DEVICE void Arrive(uint32_t at) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(at) : "memory");
}
// Arrives once for the warp. REQUIRES: all lanes of a warp.
XPUD_DEVICE void Release(uint32_t at) {
  if (Lane() % 32 == 0) Arrive(at);
}
// Waits for the end of phase `phase`.
XPUD_DEVICE void Await(uint32_t at, uint32_t phase) {
  asm volatile(
      "{\n.reg .pred done;\nagain:\nmbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@done bra.uni over;\nbra.uni again;\nover:\n}" ::"r"(at),
      "r"(phase)
      : "memory");
}

// For two teams with kLanes in all: AwaitTurn(n) returns after the other team called GiveTurn(n).
template <int kLanes>
XPUD_DEVICE void AwaitTurn(int turn) {
  asm volatile("bar.sync %0, %1;" ::"r"(turn), "n"(kLanes) : "memory");
}
template <int kLanes>
XPUD_DEVICE void GiveTurn(int turn) {
  asm volatile("bar.arrive %0, %1;" ::"r"(turn), "n"(kLanes) : "memory");
}

// Gives up registers of each lane of the calling team, or takes some that others gave up.
template <int kCount>
XPUD_DEVICE void GiveRegisters() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kCount));
}
template <int kCount>
XPUD_DEVICE void TakeRegisters() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kCount));
}

}  // namespace xpud::gpu
