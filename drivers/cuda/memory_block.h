// A range of memory that a CUDA device can use, in one of three forms: memory of cuMemAlloc; physical memory
// with a mapping of its own, which other processes can map too; pinned host memory.
#pragma once

#include <level_zero/ze_api.h>

#include <cstddef>
#include <memory>

#include "drivers/cuda/device.h"
#include "drivers/frontend/context.h"

namespace xpud::drivers::cuda {

class CudaMemoryBlock final : public MemoryBlock {
 public:
  // Creates new memory, or maps exported memory of any process. Only device memory can be exported.
  static ze_result_t Create(CudaDevice& device, const MemoryRequest& request,
                            std::unique_ptr<MemoryBlock>& block);
  ~CudaMemoryBlock() override;

  void* base() const override { return reinterpret_cast<void*>(base_); }
  size_t size() const override { return size_; }
  size_t page_size() const override { return form_ == Form::kHost ? 4096 : size_t{2} << 20; }
  ze_result_t Export(int& fd) const override;

 private:
  enum class Form { kDevice, kPhysical, kHost };
  CudaMemoryBlock(CudaDevice& device, Form form, size_t size) : device_(device), form_(form), size_(size) {}
  static Form FormOf(const MemoryRequest& request);
  ze_result_t Allocate(const MemoryRequest& request);
  // Allocates zeroed memory at the same address on host and devices.
  ze_result_t AllocateHost(size_t alignment);
  // Allocates whole units of the granularity (2 MiB).
  ze_result_t AllocatePhysical(const MemoryRequest& request);
  // Sets base_, to `address` unless that is null.
  ze_result_t Reserve(size_t size, size_t alignment, void* address);
  ze_result_t Import(int fd);
  CUresult Map(size_t size);

  CudaDevice& device_;
  const Form form_;
  const size_t size_;
  CUdeviceptr base_ = 0;
  // For physical memory only.
  size_t reserved_ = 0;
  size_t mapped_ = 0;
  CUmemGenericAllocationHandle handle_ = 0;
};

}  // namespace xpud::drivers::cuda
