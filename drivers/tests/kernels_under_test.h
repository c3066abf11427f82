// For tests: the same kernels for each back end, as a NATIVE module.
// clang-format off
//   add(u64* out, u64 addend)                  out[group] += addend
//   scale(float* out, float* in, float factor) out[group] = in[group] * factor
//   table(float* out)                          out[group] = 1 + group % 4
//   launches                                   a global of 8 bytes
// clang-format on
#pragma once

#include <cstring>
#include <string_view>

#include "drivers/cpu/testdata_object.h"
#include "drivers/tests/cuda_kernels.h"

namespace xpud::drivers {

inline std::string_view KernelsFor(const char* vendor) {
  return std::strcmp(vendor, "cpu") == 0 ? cpu::KernelsObject() : std::string_view(kCudaKernels);
}

}  // namespace xpud::drivers
