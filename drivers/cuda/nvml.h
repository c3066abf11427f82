// Sensors of an NVIDIA GPU, read through NVML (libnvidia-ml.so.1, by dlopen). They need no CUDA context and
// work while the device is busy, or lost to CUDA. Thread-safe.
#pragma once

#include <memory>

#include "drivers/cuda/cuda_api.h"
#include "drivers/frontend/sensors.h"

namespace xpud::drivers::cuda {

// Returns null if NVML is absent, fails, or does not know the GPU.
std::unique_ptr<Sensors> OpenNvmlSensors(const CUuuid& uuid);

}  // namespace xpud::drivers::cuda
