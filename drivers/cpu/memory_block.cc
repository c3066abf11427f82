#include "drivers/cpu/memory_block.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace xpud::drivers::cpu {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kHugePage = size_t{2} << 20;

ze_result_t FromErrno() {
  const bool memory = errno == ENOMEM || errno == ENOSPC;
  return memory ? ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY : ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
}

// Address space for private pages that nobody has touched.
void* MapNothing(void* address, size_t size, int flags) {
  return mmap(address, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | flags, -1, 0);
}

// Address space of `size` at `address`; null when any of it is taken.
std::byte* ReserveAt(void* address, size_t size) {
  void* const range = MapNothing(address, size, MAP_FIXED_NOREPLACE);
  if (range == MAP_FAILED) return nullptr;
  if (range == address) return static_cast<std::byte*>(range);
  munmap(range, size);  // a kernel before 4.17, or a sanitizer, took the address for a hint
  return nullptr;
}

// Address space of `size` at a multiple of `alignment`; null when there is none.
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

ze_result_t MemoryBlock::Create(const MemoryRequest& request, std::unique_ptr<MemoryBlock>& block) {
  block.reset(new MemoryBlock);
  if (request.exportable) {
    block->fd_.Reset(memfd_create("xpud-cpu-memory", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (!block->fd_.valid()) return FromErrno();
    const size_t bytes = (request.size + kPage - 1) / kPage * kPage;
    if (bytes < request.size || ftruncate(block->fd_.get(), static_cast<off_t>(bytes)) != 0)
      return FromErrno();
    if (fcntl(block->fd_.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
      return FromErrno();
  }
  return block->Map(request);
}

ze_result_t MemoryBlock::Import(const MemoryRequest& request, std::unique_ptr<MemoryBlock>& block) {
  const int fd = request.import_fd;
  struct stat info;
  if (fstat(fd, &info) != 0) return ZE_RESULT_ERROR_INVALID_ARGUMENT;
  if (info.st_size < 0 || static_cast<uint64_t>(info.st_size) < request.size)
    return ZE_RESULT_ERROR_INVALID_SIZE;
  const int seals = fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) return ZE_RESULT_ERROR_INVALID_ARGUMENT;
  block.reset(new MemoryBlock);
  block->fd_.Reset(fcntl(fd, F_DUPFD_CLOEXEC, 0));
  if (!block->fd_.valid()) return FromErrno();
  return block->Map(request);
}

ze_result_t MemoryBlock::Map(const MemoryRequest& request) {
  const size_t whole = (request.size + kPage - 1) / kPage * kPage;
  if (whole < request.size) return ZE_RESULT_ERROR_UNSUPPORTED_SIZE;
  const bool placed = request.address != nullptr;
  const size_t alignment = std::max({request.alignment, kPage, whole >= kHugePage ? kHugePage : kPage});
  std::byte* const base = placed ? ReserveAt(request.address, whole) : Reserve(whole, alignment);
  if (base == nullptr)
    return placed ? ZE_RESULT_ERROR_OVERLAPPING_REGIONS : ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY;
  base_ = base;
  size_ = request.size;
  mapped_ = whole;
  const int kind = fd_.valid() ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS;
  const int flags = kind | MAP_FIXED | MAP_NORESERVE;
  if (mmap(base, whole, PROT_READ | PROT_WRITE, flags, fd_.get(), 0) == MAP_FAILED) return FromErrno();
  // Both are improvements, not conditions. A forked child never uses the device, and must not make our pages
  // copy-on-write.
  if (whole >= kHugePage) madvise(base, whole, MADV_HUGEPAGE);
  madvise(base, whole, MADV_DONTFORK);
  return ZE_RESULT_SUCCESS;
}

size_t MemoryBlock::page_size() const { return mapped_ >= kHugePage ? kHugePage : kPage; }

MemoryBlock::~MemoryBlock() {
  if (base_ != nullptr) munmap(base_, mapped_);
}

}  // namespace xpud::drivers::cpu
