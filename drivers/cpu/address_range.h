// A range of addresses that maps pages of the CPU device.
#pragma once

#include <level_zero/ze_api.h>

#include <cstddef>
#include <memory>

#include "drivers/cpu/physical_block.h"
#include "drivers/frontend/address_range.h"

namespace xpud::drivers::cpu {

class CpuAddressRange final : public AddressRange {
 public:
  // Reserves addresses at a multiple of `alignment` (a power of two, or 0), or exactly at `start` unless that
  // is null: OVERLAPPING_REGIONS if any of them is in use. A large range is aligned to huge pages.
  static ze_result_t Reserve(size_t size, size_t alignment, void* start,
                             std::unique_ptr<CpuAddressRange>& range);
  ~CpuAddressRange() override;

  std::byte* base() const override { return base_; }
  size_t size() const override { return size_; }
  bool divides_mappings() const override { return true; }
  ze_result_t Map(std::byte* address, size_t size, const PhysicalBlock& memory, size_t offset,
                  ze_memory_access_attribute_t access) override;
  ze_result_t Unmap(std::byte* address, size_t size) override;
  ze_result_t SetAccess(std::byte* address, size_t size, const PhysicalBlock& memory,
                        ze_memory_access_attribute_t access) override;

 private:
  CpuAddressRange(std::byte* base, size_t size) : base_(base), size_(size) {}

  std::byte* const base_;
  const size_t size_;
};

}  // namespace xpud::drivers::cpu
