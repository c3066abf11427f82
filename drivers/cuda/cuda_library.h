// Opens libcuda once. The rest of this folder is used only if Load succeeded.
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

// Returns the library to open: XPUD_CUDA_LIBRARY if set, otherwise "libcuda.so.1".
const char* CudaLibraryName();

// Opens the library, initialises it and counts its devices. Returns 0, with a reason of one line, if no
// device can be used. The library stays open.
int LoadCuda(const char* name, CudaFunctions& functions, std::string& reason);

// The functions of the library. Filled when the driver is created, before any device exists; constant
// afterwards.
inline constinit CudaFunctions cu{};

// Returns, for example, "CUDA_ERROR_INVALID_PTX (a PTX JIT compilation failed)".
std::string Describe(CUresult result);

}  // namespace xpud::drivers::cuda
