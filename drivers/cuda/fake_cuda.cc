// For tests: a library that acts like CUDA's driver on a machine where it cannot be used. XPUD_FAKE_CUDA
// selects the failure: "old", "init" or "none".
#include <cstdlib>
#include <cstring>

#include "drivers/cuda/cuda_api.h"

namespace {

using xpud::drivers::cuda::CUDA_SUCCESS;
using xpud::drivers::cuda::CUresult;

bool Is(const char* kind) {
  const char* const wanted = std::getenv("XPUD_FAKE_CUDA");
  return wanted != nullptr && std::strcmp(wanted, kind) == 0;
}

}  // namespace

#define XPUD_EXPORTED extern "C" __attribute__((visibility("default")))

XPUD_EXPORTED CUresult cuInit(unsigned) { return Is("init") ? static_cast<CUresult>(803) : CUDA_SUCCESS; }
XPUD_EXPORTED CUresult cuDriverGetVersion(int* version) {
  *version = Is("old") ? 11000 : 13000;
  return CUDA_SUCCESS;
}
XPUD_EXPORTED CUresult cuDeviceGetCount(int* count) {
  *count = Is("none") ? 0 : 1;
  return CUDA_SUCCESS;
}
XPUD_EXPORTED CUresult cuGetErrorName(CUresult, const char** name) {
  *name = "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH";
  return CUDA_SUCCESS;
}
