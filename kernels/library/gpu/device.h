// For files that are compiled to PTX (*.cu): the keywords of CUDA C++ that they use, without a CUDA SDK, and
// the element types. Device code only.
#pragma once

#include <stdint.h>

#define XPUD_DEVICE __attribute__((device, always_inline)) static inline
#define XPUD_SHARED __attribute__((shared)) static
#define XPUD_KERNEL(threads) extern "C" __attribute__((global, launch_bounds(threads))) void
#define XPUD_KERNEL_OF(threads, groups) \
  extern "C" __attribute__((global, launch_bounds(threads, groups))) void
#define XPUD_DEVICE_MEMBER __attribute__((device, always_inline)) inline
// The bytes of `extern __attribute__((shared))` memory of a kernel's groups; drivers/cuda reads this symbol.
#define XPUD_LOCAL_MEMORY(kernel, bytes)                                                                  \
  extern "C" __attribute__((constant, used, visibility("default"))) const uint32_t kernel##_local_bytes = \
      bytes

namespace xpud::gpu {

XPUD_DEVICE int Lane() { return static_cast<int>(__nvvm_read_ptx_sreg_tid_x()); }
XPUD_DEVICE int64_t GroupX() { return __nvvm_read_ptx_sreg_ctaid_x(); }
XPUD_DEVICE int64_t GroupY() { return __nvvm_read_ptx_sreg_ctaid_y(); }
XPUD_DEVICE int64_t GroupsX() { return __nvvm_read_ptx_sreg_nctaid_x(); }
XPUD_DEVICE int64_t GroupsY() { return __nvvm_read_ptx_sreg_nctaid_y(); }
XPUD_DEVICE void Synchronize() { __syncthreads(); }

template <typename T>
XPUD_DEVICE T Least(T a, T b) {
  return a < b ? a : b;
}

// An element type in memory, and the type in which it is computed.
struct BFloat16 {
  uint16_t bits;
};
struct Float16 {
  uint16_t bits;
};
template <typename T>
struct Wide {
  using type = float;
};
template <>
struct Wide<double> {
  using type = double;
};

XPUD_DEVICE float Load(float x) { return x; }
XPUD_DEVICE double Load(double x) { return x; }
XPUD_DEVICE float Load(BFloat16 x) { return __builtin_bit_cast(float, static_cast<uint32_t>(x.bits) << 16); }
XPUD_DEVICE float Load(Float16 x) {
  float wide;
  asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(x.bits));
  return wide;
}
XPUD_DEVICE void Store(float& at, float x) { at = x; }
XPUD_DEVICE void Store(double& at, double x) { at = x; }
XPUD_DEVICE void Store(BFloat16& at, float x) { asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(at.bits) : "f"(x)); }
XPUD_DEVICE void Store(Float16& at, float x) { asm("cvt.rn.f16.f32 %0, %1;" : "=h"(at.bits) : "f"(x)); }

}  // namespace xpud::gpu
