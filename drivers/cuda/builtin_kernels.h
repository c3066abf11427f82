// Kernels that the driver itself needs: CUDA has no call that stores the device's clock, that fills with
// patterns other than 1, 2 and 4 bytes, or that copies from host to host without blocking. PTX, compiled by
// the device's driver. Immutable once loaded.
#pragma once

#include <cstddef>
#include <cstdint>

#include "drivers/cuda/cuda_api.h"

namespace xpud::drivers::cuda {

constexpr size_t kMaxPatternSize = 128;

class BuiltinKernels {
 public:
  // Loads the kernels into the current context.
  CUresult Load();
  // *target = the device's clock (%globaltimer), in nanoseconds.
  CUresult StoreTime(uint64_t* target, CUstream stream) const;
  // Repeats a pattern of at most kMaxPatternSize bytes, which is copied before this returns.
  CUresult Fill(void* target, const void* pattern, size_t pattern_size, size_t size, CUstream stream) const;
  // Copies between memory that the device can access.
  CUresult Copy(void* target, const void* source, size_t size, CUstream stream) const;

 private:
  CUfunction store_time_ = nullptr;
  CUfunction fill_ = nullptr;
  CUfunction copy_ = nullptr;
};

}  // namespace xpud::drivers::cuda
