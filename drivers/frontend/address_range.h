// Interface of a reserved range of addresses. Until it is destroyed, nothing else of the process gets them.
// Its owner unmaps what it has mapped before it destroys the range. Calls for different parts of a range may
// come from several threads.
#pragma once

#include <level_zero/ze_api.h>

#include <cstddef>

#include "drivers/frontend/physical_block.h"

namespace xpud::drivers {

class AddressRange {
 public:
  AddressRange() = default;
  AddressRange(const AddressRange&) = delete;
  AddressRange& operator=(const AddressRange&) = delete;
  virtual ~AddressRange() = default;

  virtual std::byte* base() const = 0;
  virtual size_t size() const = 0;
  // Whether a part of a mapping can be unmapped, or get another access, without the rest.
  virtual bool divides_mappings() const = 0;

  // Addresses, sizes and offsets are whole pages, in this range and in `memory`.
  // REQUIRES: nothing is mapped there.
  virtual ze_result_t Map(std::byte* address, size_t size, const PhysicalBlock& memory, size_t offset,
                          ze_memory_access_attribute_t access) = 0;
  // REQUIRES: all of it belongs to one mapping; and is the whole of it, unless mappings can be divided.
  virtual ze_result_t Unmap(std::byte* address, size_t size) = 0;
  // REQUIRES: as Unmap; `memory` is mapped there.
  virtual ze_result_t SetAccess(std::byte* address, size_t size, const PhysicalBlock& memory,
                                ze_memory_access_attribute_t access) = 0;
};

}  // namespace xpud::drivers
