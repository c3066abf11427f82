// CUDA's results as Level Zero's. Any thread.
#pragma once

#include <level_zero/ze_api.h>

#include "drivers/cuda/cuda_api.h"

namespace xpud::drivers::cuda {

// True for an error after which every call on the context fails: the device is lost to this process.
bool IsSticky(CUresult result);

ze_result_t ToZe(CUresult result);

}  // namespace xpud::drivers::cuda
