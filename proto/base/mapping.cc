#include "proto/base/mapping.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "proto/base/descriptor_error.h"
#include "proto/base/status_macros.h"

namespace xpud {
namespace {

// Of mappings, ENOMEM has two causes.
absl::Status ErrnoStatus(const char* call) {
  if (errno != ENOMEM) return DescriptorError(call);
  uint64_t most = 0;
  std::ifstream("/proc/sys/vm/max_map_count") >> most;
  return absl::ResourceExhaustedError(
      absl::StrCat(call, " failed: there is no memory or address space left, or the process has reached its ",
                   most, " mappings; raise that limit: sysctl vm.max_map_count"));
}

absl::Status CheckSizeIsFixed(int fd, uint64_t needed) {
  struct stat info;
  if (fstat(fd, &info) != 0) return ErrnoStatus("fstat");
  if (static_cast<uint64_t>(info.st_size) < needed) {
    return absl::InvalidArgumentError(
        absl::StrCat("shared memory holds ", info.st_size, " bytes, ", needed, " are needed"));
  }
  const int seals = fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) {
    return absl::InvalidArgumentError("shared memory is not sealed against shrinking (F_SEAL_SHRINK)");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<UniqueFd> CreateSealedMemfd(const char* name, size_t bytes) {
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  bytes = (bytes + page - 1) / page * page;
  UniqueFd fd(memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid()) return ErrnoStatus("memfd_create");
  if (ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) return ErrnoStatus("ftruncate");
  if (fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return ErrnoStatus("fcntl(F_ADD_SEALS)");
  }
  return fd;
}

void EmptyMemfd(const UniqueFd& fd, uint64_t from) {
  struct stat info;
  if (fstat(fd.get(), &info) != 0 || static_cast<uint64_t>(info.st_size) <= from) return;
  const auto begin = static_cast<off_t>(from);
  (void)fallocate(fd.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, begin, info.st_size - begin);
}

absl::StatusOr<Mapping> Mapping::Own(void* address, size_t bytes) {
  if (address == MAP_FAILED) return ErrnoStatus("mmap");
  Mapping mapping;
  mapping.address_ = address;
  mapping.bytes_ = mapping.reserved_ = bytes;
  if (madvise(address, bytes, MADV_DONTFORK) != 0) return ErrnoStatus("madvise(MADV_DONTFORK)");
  return mapping;
}

absl::StatusOr<Mapping> Mapping::Map(const UniqueFd& fd, size_t bytes, Access access, uint64_t offset) {
  RETURN_IF_ERROR(CheckSizeIsFixed(fd.get(), offset + bytes));
  const int protection = access == Access::kReadOnly ? PROT_READ : PROT_READ | PROT_WRITE;
  return Own(mmap(nullptr, bytes, protection, MAP_SHARED, fd.get(), static_cast<off_t>(offset)), bytes);
}

absl::StatusOr<Mapping> Mapping::MapMirrored(const UniqueFd& fd, size_t bytes, Access access,
                                             uint64_t offset) {
  RETURN_IF_ERROR(CheckSizeIsFixed(fd.get(), offset + bytes));
  void* reserved = mmap(nullptr, 2 * bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (reserved == MAP_FAILED) return ErrnoStatus("mmap");
  Mapping mapping;
  mapping.address_ = reserved;
  mapping.bytes_ = bytes;
  mapping.reserved_ = 2 * bytes;
  const int protection = access == Access::kReadOnly ? PROT_READ : PROT_READ | PROT_WRITE;
  for (size_t copy = 0; copy < 2; ++copy) {
    void* half = static_cast<std::byte*>(reserved) + copy * bytes;
    if (mmap(half, bytes, protection, MAP_SHARED | MAP_FIXED, fd.get(), static_cast<off_t>(offset)) ==
        MAP_FAILED) {
      return ErrnoStatus("mmap");
    }
  }
  if (madvise(reserved, 2 * bytes, MADV_DONTFORK) != 0) return ErrnoStatus("madvise(MADV_DONTFORK)");
  return mapping;
}

absl::StatusOr<Mapping> Mapping::MapPrivate(size_t bytes) {
  return Own(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), bytes);
}

Mapping::Mapping(Mapping&& other) noexcept
    : address_(std::exchange(other.address_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)),
      reserved_(std::exchange(other.reserved_, 0)) {}

Mapping& Mapping::operator=(Mapping&& other) noexcept {
  std::swap(address_, other.address_);
  std::swap(bytes_, other.bytes_);
  std::swap(reserved_, other.reserved_);
  return *this;
}

Mapping::~Mapping() {
  if (address_ != nullptr) munmap(address_, reserved_);
}

}  // namespace xpud
