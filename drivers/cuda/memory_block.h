// A range of memory that a CUDA device can use, in one of three forms: memory of cuMemAlloc; physical memory
// with a mapping of its own, which other processes can map too; pinned host memory.
#pragma once

#include <level_zero/ze_api.h>

#include <cstddef>
#include <memory>

#include "drivers/cuda/address_range.h"
#include "drivers/cuda/device.h"
#include "drivers/cuda/physical_block.h"
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
  size_t page_size() const override { return form_ == Form::kHost ? 4096 : kPage; }
  ze_result_t Export(int& fd) const override { return physical_->Export(fd); }

 private:
  enum class Form { kDevice, kPhysical, kHost };
  CudaMemoryBlock(CudaDevice& device, Form form, size_t size) : device_(device), form_(form), size_(size) {}
  static Form FormOf(const MemoryRequest& request);
  ze_result_t Allocate(const MemoryRequest& request);
  // Allocates zeroed memory at the same address on host and devices.
  ze_result_t AllocateHost(size_t alignment);
  // Allocates whole pages.
  ze_result_t AllocatePhysical(const MemoryRequest& request);

  CudaDevice& device_;
  const Form form_;
  const size_t size_;
  CUdeviceptr base_ = 0;
  // For physical memory only.
  std::unique_ptr<CudaPhysicalBlock> physical_;
  std::unique_ptr<CudaAddressRange> range_;
  size_t mapped_ = 0;
};

}  // namespace xpud::drivers::cuda
