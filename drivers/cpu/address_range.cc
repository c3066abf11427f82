#include "drivers/cpu/address_range.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>

#include "drivers/cpu/pages.h"

namespace xpud::drivers::cpu {
namespace {

// Maps address space for private pages, none of which is populated.
void* MapNothing(void* address, size_t size, int flags) {
  return mmap(address, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | flags, -1, 0);
}

// Reserves address space of `size` at `address`. Returns OVERLAPPING_REGIONS if any of it is in use, or no
// address of programs; OUT_OF_DEVICE_MEMORY if other addresses would be refused, too.
ze_result_t ReserveAt(void* address, size_t size) {
  void* range = MapNothing(address, size, MAP_FIXED_NOREPLACE);
  if (range == address) return ZE_RESULT_SUCCESS;
  if (range == MAP_FAILED) range = MapNothing(nullptr, size, 0);
  if (range == MAP_FAILED) return ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY;
  munmap(range, size);  // or a kernel before 4.17, or a sanitizer, treated the address as a hint
  return ZE_RESULT_ERROR_OVERLAPPING_REGIONS;
}

// Reserves address space of `size` at a multiple of `alignment`. Returns null if there is none.
std::byte* ReserveAnywhere(size_t size, size_t alignment) {
  const size_t slack = alignment > kPage ? alignment - kPage : 0;
  if (size > SIZE_MAX - slack) return nullptr;
  void* const range = MapNothing(nullptr, size + slack, 0);
  if (range == MAP_FAILED) return nullptr;
  const uintptr_t begin = reinterpret_cast<uintptr_t>(range);
  const uintptr_t base = (begin + alignment - 1) / alignment * alignment;
  if (base > begin) munmap(range, base - begin);
  if (begin + slack > base) munmap(reinterpret_cast<void*>(base + size), begin + slack - base);
  return reinterpret_cast<std::byte*>(base);
}

int Protection(ze_memory_access_attribute_t access) {
  if (access == ZE_MEMORY_ACCESS_ATTRIBUTE_NONE) return PROT_NONE;
  return access == ZE_MEMORY_ACCESS_ATTRIBUTE_READONLY ? PROT_READ : PROT_READ | PROT_WRITE;
}

}  // namespace

ze_result_t CpuAddressRange::Reserve(size_t size, size_t alignment, void* start,
                                     std::unique_ptr<CpuAddressRange>& range) {
  auto* base = static_cast<std::byte*>(start);
  if (start == nullptr) {
    base = ReserveAnywhere(size, std::max(alignment, PageSizeOf(size)));
    if (base == nullptr) return ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY;
  } else if (const ze_result_t result = ReserveAt(start, size); result != ZE_RESULT_SUCCESS) {
    return result;
  }
  range.reset(new CpuAddressRange(base, size));
  return ZE_RESULT_SUCCESS;
}

CpuAddressRange::~CpuAddressRange() { munmap(base_, size_); }

ze_result_t CpuAddressRange::Map(std::byte* address, size_t size, const PhysicalBlock& memory, size_t offset,
                                 ze_memory_access_attribute_t access) {
  const int fd = static_cast<const CpuPhysicalBlock&>(memory).fd();
  const int kind = fd >= 0 ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS;
  if (mmap(address, size, Protection(access), kind | MAP_FIXED | MAP_NORESERVE, fd,
           static_cast<off_t>(offset)) == MAP_FAILED) {
    const ze_result_t result = ResultOfErrno();
    static_cast<void>(Unmap(address, size));  // the failed call may have removed what was there
    return result;
  }
  // Optimisations that may fail. A forked child never uses the device, and must not make our pages
  // copy-on-write.
  if (size >= kHugePage) madvise(address, size, MADV_HUGEPAGE);
  madvise(address, size, MADV_DONTFORK);
  return ZE_RESULT_SUCCESS;
}

ze_result_t CpuAddressRange::Unmap(std::byte* address, size_t size) {
  return MapNothing(address, size, MAP_FIXED) == MAP_FAILED ? ResultOfErrno() : ZE_RESULT_SUCCESS;
}

ze_result_t CpuAddressRange::SetAccess(std::byte* address, size_t size, const PhysicalBlock& /*memory*/,
                                       ze_memory_access_attribute_t access) {
  return mprotect(address, size, Protection(access)) == 0 ? ZE_RESULT_SUCCESS : ResultOfErrno();
}

}  // namespace xpud::drivers::cpu
