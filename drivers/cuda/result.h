// Converts CUDA's results to Level Zero's. Thread-safe.
#pragma once

#include <level_zero/ze_api.h>

#include "drivers/cuda/cuda_api.h"

namespace xpud::drivers::cuda {

// Whether every later call on the context fails after this error: the device is lost to this process.
bool IsSticky(CUresult result);

ze_result_t ToZe(CUresult result);

}  // namespace xpud::drivers::cuda
