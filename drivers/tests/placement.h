// For tests: addresses that are free in every process of this build, requests for memory there, and exports.
#pragma once

#include <level_zero/ze_api.h>

#include <cstdint>

#include "proto/base/ze_ext.h"

namespace xpud::drivers {

// ThreadSanitizer's shadow covers the usual range, and TSan ends a process that requests an address there.
// AddressSanitizer's shadow covers the range that is free under TSan.
#if defined(__has_feature) && __has_feature(thread_sanitizer)
inline constexpr uint64_t kPlaceForHost = 0x8000000000;
inline constexpr uint64_t kPlaceForDevice = 0x10000000000;
inline constexpr bool kOtherPlacesAreLegal = false;
#else
inline constexpr uint64_t kPlaceForHost = 0x110000000000;
inline constexpr uint64_t kPlaceForDevice = 0x120000000000;
inline constexpr bool kOtherPlacesAreLegal = true;
#endif

inline void* AtAddress(uint64_t address) { return reinterpret_cast<void*>(address); }

// A request for new exportable memory, or for imported memory if there is an fd, at an address. `next` is the
// head of the chain.
class PlacedMemory {
 public:
  explicit PlacedMemory(uint64_t address, int import_fd = -1) {
    place_ = {XPUD_STRUCTURE_TYPE_MEM_ADDRESS_DESC, nullptr, AtAddress(address)};
    import_ = {ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_IMPORT_FD, &place_, ZE_EXTERNAL_MEMORY_TYPE_FLAG_OPAQUE_FD,
               import_fd};
    exported_ = {ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_EXPORT_DESC, &place_,
                 ZE_EXTERNAL_MEMORY_TYPE_FLAG_OPAQUE_FD};
    desc_ = {ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC, nullptr, 0, 0};
    desc_.pNext = import_fd < 0 ? static_cast<const void*>(&exported_) : &import_;
  }
  PlacedMemory(const PlacedMemory&) = delete;
  PlacedMemory& operator=(const PlacedMemory&) = delete;

  const void* next() const { return desc_.pNext; }
  const ze_device_mem_alloc_desc_t& desc() const { return desc_; }

 private:
  xpud_mem_address_desc_t place_;
  ze_external_memory_import_fd_t import_;
  ze_external_memory_export_desc_t exported_;
  ze_device_mem_alloc_desc_t desc_;
};

// Exports memory as a new fd.
inline ze_result_t ExportFd(ze_context_handle_t context, const void* address, int& fd) {
  ze_external_memory_export_fd_t exported{ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_EXPORT_FD, nullptr,
                                          ZE_EXTERNAL_MEMORY_TYPE_FLAG_OPAQUE_FD, -1};
  ze_memory_allocation_properties_t properties{};
  properties.stype = ZE_STRUCTURE_TYPE_MEMORY_ALLOCATION_PROPERTIES;
  properties.pNext = &exported;
  const ze_result_t result = zeMemGetAllocProperties(context, address, &properties, nullptr);
  fd = exported.fd;
  return result;
}

}  // namespace xpud::drivers
