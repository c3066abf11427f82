#include "drivers/cpu/memory_block.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "proto/base/ze_ext.h"

namespace xpud::drivers::cpu {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kHugePage = size_t{2} << 20;

size_t RoundUp(size_t size, size_t unit) { return (size + unit - 1) / unit * unit; }

ze_result_t FromErrno() {
  const bool memory = errno == ENOMEM || errno == ENOSPC;
  return memory ? ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY : ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
}

// Maps address space for private pages, none of which is populated.
void* MapNothing(void* address, size_t size, int flags) {
  return mmap(address, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | flags, -1, 0);
}

// Reserves address space of `size` at `address`. Returns null if any of it is in use.
std::byte* ReserveAt(void* address, size_t size) {
  void* const range = MapNothing(address, size, MAP_FIXED_NOREPLACE);
  if (range == MAP_FAILED) return nullptr;
  if (range == address) return static_cast<std::byte*>(range);
  munmap(range, size);  // a kernel before 4.17, or a sanitizer, treats the address as a hint
  return nullptr;
}

// Reserves address space of `size` at a multiple of `alignment`. Returns null if there is none.
std::byte* Reserve(size_t size, size_t alignment) {
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

}  // namespace

ze_result_t CpuMemoryBlock::Create(CpuDevice& device, const MemoryRequest& request,
                                   std::unique_ptr<MemoryBlock>& block) {
  std::unique_ptr<CpuMemoryBlock> made(new CpuMemoryBlock(device));
  ze_result_t result = made->Charge(request);
  if (result == ZE_RESULT_SUCCESS && request.import_fd >= 0) {
    result = made->Import(request.import_fd, request.size);
  } else if (result == ZE_RESULT_SUCCESS && request.exportable) {
    result = made->MakeFd(request.size);
  }
  if (result == ZE_RESULT_SUCCESS) result = made->Map(request);
  if (result == ZE_RESULT_SUCCESS) block = std::move(made);
  return result;
}

// Imported memory is charged to the device that allocated it.
ze_result_t CpuMemoryBlock::Charge(const MemoryRequest& request) {
  if (request.size > device_.memory()) return ZE_RESULT_ERROR_UNSUPPORTED_SIZE;
  const uint64_t bytes = request.import_fd >= 0 ? 0 : request.size;
  if (!device_.Charge(bytes)) return ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY;
  charged_ = bytes;
  return ZE_RESULT_SUCCESS;
}

ze_result_t CpuMemoryBlock::MakeFd(size_t size) {
  fd_.Reset(memfd_create("xpud-cpu-memory", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd_.valid()) return FromErrno();
  if (ftruncate(fd_.get(), static_cast<off_t>(RoundUp(size, kPage))) != 0) return FromErrno();
  const int sealed = fcntl(fd_.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
  return sealed == 0 ? ZE_RESULT_SUCCESS : FromErrno();
}

ze_result_t CpuMemoryBlock::Import(int fd, size_t size) {
  struct stat info;
  if (fstat(fd, &info) != 0) return ZE_RESULT_ERROR_INVALID_ARGUMENT;
  if (info.st_size < 0 || static_cast<uint64_t>(info.st_size) < size) return ZE_RESULT_ERROR_INVALID_SIZE;
  const int seals = fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) return ZE_RESULT_ERROR_INVALID_ARGUMENT;
  fd_.Reset(fcntl(fd, F_DUPFD_CLOEXEC, 0));
  return fd_.valid() ? ZE_RESULT_SUCCESS : FromErrno();
}

ze_result_t CpuMemoryBlock::Map(const MemoryRequest& request) {
  const size_t whole = RoundUp(request.size, kPage);
  const bool placed = request.address != nullptr;
  const size_t reserved = placed ? RoundUp(whole, XPUD_MEM_ADDRESS_UNIT) : whole;
  const size_t alignment = std::max({request.alignment, kPage, whole >= kHugePage ? kHugePage : kPage});
  std::byte* const base = placed ? ReserveAt(request.address, reserved) : Reserve(whole, alignment);
  if (base == nullptr)
    return placed ? ZE_RESULT_ERROR_OVERLAPPING_REGIONS : ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY;
  base_ = base;
  size_ = request.size;
  mapped_ = whole;
  reserved_ = reserved;
  const int kind = fd_.valid() ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS;
  const int flags = kind | MAP_FIXED | MAP_NORESERVE;
  if (mmap(base, whole, PROT_READ | PROT_WRITE, flags, fd_.get(), 0) == MAP_FAILED) return FromErrno();
  // Optimisations that may fail. A forked child never uses the device, and must not make our pages
  // copy-on-write.
  if (whole >= kHugePage) madvise(base, whole, MADV_HUGEPAGE);
  madvise(base, whole, MADV_DONTFORK);
  return ZE_RESULT_SUCCESS;
}

size_t CpuMemoryBlock::page_size() const { return mapped_ >= kHugePage ? kHugePage : kPage; }

ze_result_t CpuMemoryBlock::Export(int& fd) const {
  fd = fcntl(fd_.get(), F_DUPFD_CLOEXEC, 0);
  return fd >= 0 ? ZE_RESULT_SUCCESS : ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
}

CpuMemoryBlock::~CpuMemoryBlock() {
  if (base_ != nullptr) munmap(base_, reserved_);
  device_.Discharge(charged_);
}

}  // namespace xpud::drivers::cpu
