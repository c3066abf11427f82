// libcuda, opened once. Nothing else in this folder is reached unless Load succeeded.
#pragma once

#include <string>

#include "drivers/cuda/cuda_api.h"

namespace xpud::drivers::cuda {

struct CudaFunctions {
#define XPUD_CUDA_MEMBER(name, symbol, ...) CUresult (*name)(__VA_ARGS__);
  XPUD_CUDA_FUNCTIONS(XPUD_CUDA_MEMBER)
#undef XPUD_CUDA_MEMBER
};

// CUDA 12.4: the first with cuFuncGetParamInfo, cuFuncLoad and cuModuleEnumerateFunctions.
inline constexpr int kMinimumVersion = 12040;

// What is opened: XPUD_CUDA_LIBRARY where it is set, else "libcuda.so.1".
const char* CudaLibraryName();

// Opens the library, initialises it and counts its devices. 0: none can be used, and `reason` is one line
// that says why. The library stays open.
int LoadCuda(const char* name, CudaFunctions& functions, std::string& reason);

// The functions of the process: filled by the driver's creation, before any device exists; constant then.
inline constinit CudaFunctions cu{};

// "CUDA_ERROR_INVALID_PTX (a PTX JIT compilation failed)".
std::string Describe(CUresult result);

}  // namespace xpud::drivers::cuda
