// A reserved range of addresses with what is mapped into it, and the access attribute of each page. Not
// thread-safe.
#pragma once

#include <level_zero/ze_api.h>

#include <cstdint>
#include <map>
#include <memory>

#include "drivers/frontend/address_range.h"
#include "drivers/frontend/physical_memory.h"

namespace xpud::drivers {

struct MappedMemory {
  std::byte* base;
  size_t size;
  const PhysicalMemory* memory;
  size_t offset;  // of its first byte in the physical memory
};

// Ranges of the functions are whole pages in the reservation.
class Reservation {
 public:
  explicit Reservation(std::unique_ptr<AddressRange> range);
  ~Reservation();

  const AddressRange& range() const { return *range_; }
  // Returns OVERLAPPING_REGIONS if something is mapped there.
  ze_result_t Map(const MappedMemory& mapped, ze_memory_access_attribute_t access);
  // Pages that are not mapped are left out. Return UNSUPPORTED_FEATURE, and change nothing, if a mapping
  // would have to be divided and cannot be.
  ze_result_t Unmap(std::byte* address, size_t size);
  ze_result_t SetAccess(std::byte* address, size_t size, ze_memory_access_attribute_t access);
  // Returns how many of the `size` bytes, from the first on, have the access attribute of the first.
  size_t GetAccess(std::byte* address, size_t size, ze_memory_access_attribute_t& access) const;
  // Returns null if nothing is mapped there.
  const MappedMemory* Find(const std::byte* address) const;
  bool Maps(const PhysicalMemory& memory) const;

 private:
  using Mappings = std::map<std::byte*, MappedMemory>;

  std::byte* end() const { return range_->base() + range_->size(); }
  // Returns the first mapping that ends after `address`.
  Mappings::const_iterator FirstAfter(const std::byte* address) const;
  bool MustDivide(const std::byte* address, const std::byte* end) const;
  // Removes a part of the mapping. Returns the next mapping.
  Mappings::const_iterator Remove(Mappings::const_iterator mapping, std::byte* address, std::byte* end);
  void NoteAccess(std::byte* address, std::byte* end, ze_memory_access_attribute_t access);

  const std::unique_ptr<AddressRange> range_;
  Mappings mappings_;  // by base
  // Each attribute holds up to the next entry's address.
  std::map<std::byte*, ze_memory_access_attribute_t> access_;
};

}  // namespace xpud::drivers
