// A range of memory that a CUDA device can use, in one of three forms: what cuMemAlloc gives; physical memory
// mapped at an address of its own, which other processes can map too; pinned host memory. Owned by an
// AllocationMap. Immutable; any thread.
#pragma once

#include <level_zero/ze_api.h>

#include <cstddef>
#include <memory>

#include "drivers/cuda/device.h"
#include "drivers/frontend/context.h"

namespace xpud::drivers::cuda {

class MemoryBlock {
 public:
  // Device memory: new, or another process's (or this one's) exported memory.
  static ze_result_t AllocateDevice(CudaDevice& device, const MemoryRequest& request,
                                    std::unique_ptr<MemoryBlock>& block);
  // Zeroed, and at the same address on host and devices.
  static ze_result_t AllocateHost(CudaDevice& device, size_t size, size_t alignment,
                                  std::unique_ptr<MemoryBlock>& block);
  ~MemoryBlock();
  MemoryBlock(const MemoryBlock&) = delete;
  MemoryBlock& operator=(const MemoryBlock&) = delete;

  void* base() const { return reinterpret_cast<void*>(base_); }
  size_t size() const { return size_; }
  size_t page_size() const { return form_ == Form::kHost ? 4096 : size_t{2} << 20; }
  // A new fd that the caller owns; only for exportable memory.
  ze_result_t Export(int& fd) const;

 private:
  enum class Form { kDevice, kPhysical, kHost };
  MemoryBlock(CudaDevice& device, Form form, size_t size) : device_(device), form_(form), size_(size) {}
  // Physical memory, in whole units of the granularity (2 MiB), mapped at an address of its own.
  static ze_result_t AllocatePhysical(CudaDevice& device, const MemoryRequest& request,
                                      std::unique_ptr<MemoryBlock>& block);
  // Sets base_; at `address` unless that is null.
  ze_result_t Reserve(size_t size, size_t alignment, void* address);
  ze_result_t Import(int fd);
  CUresult Map();

  CudaDevice& device_;
  const Form form_;
  const size_t size_;
  CUdeviceptr base_ = 0;
  // Physical memory only.
  size_t reserved_ = 0;
  size_t mapped_ = 0;
  CUmemGenericAllocationHandle handle_ = 0;
};

}  // namespace xpud::drivers::cuda
