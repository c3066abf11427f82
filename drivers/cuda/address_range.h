// A range of addresses that maps physical memory of GPUs. CUDA maps physical memory from its first byte on,
// and gives access to, and unmaps, whole mappings.
#pragma once

#include <level_zero/ze_api.h>

#include <cstddef>
#include <memory>

#include "drivers/cuda/device.h"
#include "drivers/cuda/physical_block.h"
#include "drivers/frontend/address_range.h"

namespace xpud::drivers::cuda {

class CudaAddressRange final : public AddressRange {
 public:
  // Reserves addresses at a multiple of `alignment` (a power of two, or 0), or exactly at `start` unless that
  // is null: OVERLAPPING_REGIONS if CUDA places the range elsewhere. A range at `start` is at least
  // XPUD_MEM_ADDRESS_UNIT long for CUDA, whatever its size. REQUIRES: an active device; whole pages.
  static ze_result_t Reserve(CudaDevice& device, size_t size, size_t alignment, void* start,
                             std::unique_ptr<CudaAddressRange>& range);
  ~CudaAddressRange() override;

  std::byte* base() const override { return reinterpret_cast<std::byte*>(base_); }
  size_t size() const override { return size_; }
  bool divides_mappings() const override { return false; }
  // Returns UNSUPPORTED_FEATURE for an offset; INVALID_SIZE if imported memory is smaller than `size`.
  ze_result_t Map(std::byte* address, size_t size, const PhysicalBlock& memory, size_t offset,
                  ze_memory_access_attribute_t access) override;
  ze_result_t Unmap(std::byte* address, size_t size) override;
  ze_result_t SetAccess(std::byte* address, size_t size, const PhysicalBlock& memory,
                        ze_memory_access_attribute_t access) override;

 private:
  CudaAddressRange(CudaDevice& device, size_t size) : device_(device), size_(size) {}

  CudaDevice& device_;
  const size_t size_;
  size_t reserved_ = 0;
  CUdeviceptr base_ = 0;
};

}  // namespace xpud::drivers::cuda
