#include "proto/transport/host_memory.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "proto/base/descriptor_error.h"
#include "proto/base/status_macros.h"

namespace xpud::transport {
namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW;
constexpr uint64_t kBlock = 512;  // the unit of st_blocks

absl::Status CheckSize(uint64_t bytes) {
  if (bytes != 0 && bytes % kHostMemoryUnit == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("host memory of ", bytes, " bytes: the size is not a multiple of ", kHostMemoryUnit));
}

// A hole in ordinary memory gets a page when it is touched. There may be no huge page left for it then, and
// the process that touches it would be killed.
absl::Status CheckKind(const UniqueFd& fd) {
  struct statfs info;
  if (fstatfs(fd.get(), &info) != 0) return absl::ErrnoToStatus(errno, "fstatfs failed");
  if (info.f_type == TMPFS_MAGIC) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "host memory is not a memfd, or has huge pages; share a memfd with ordinary pages");
}

absl::Status CheckPages(const struct stat& info) {
  if (static_cast<uint64_t>(info.st_blocks) * kBlock >= static_cast<uint64_t>(info.st_size))
    return absl::OkStatus();
  return absl::InvalidArgumentError("host memory lacks some of its pages: allocate them (fallocate)");
}

}  // namespace

absl::StatusOr<UniqueFd> CreateHostMemory(uint64_t bytes) {
  RETURN_IF_ERROR(CheckSize(bytes));
  UniqueFd fd(memfd_create("xpud-host", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid()) return DescriptorError("memfd_create");
  int error;
  do {
    error = fallocate(fd.get(), 0, 0, static_cast<off_t>(bytes)) == 0 ? 0 : errno;
  } while (error == EINTR);
  if (error != 0) {
    const std::string what = absl::StrCat("allocating ", bytes, " bytes of host memory failed");
    const absl::Status status = absl::ErrnoToStatus(error, what);
    return error == ENOSPC || error == ENOMEM || error == EFBIG
               ? absl::ResourceExhaustedError(status.message())
               : status;
  }
  if (fcntl(fd.get(), F_ADD_SEALS, kSeals) != 0)
    return absl::ErrnoToStatus(errno, "fcntl(F_ADD_SEALS) failed");
  return fd;
}

absl::StatusOr<ClientMemory> ClientMemory::Accept(UniqueFd fd, uint64_t bytes) {
  RETURN_IF_ERROR(CheckSize(bytes));
  const int seals = fcntl(fd.get(), F_GET_SEALS);
  if (seals < 0) return absl::InvalidArgumentError("host memory is not a memfd");
  if ((seals & kSeals) != kSeals || (seals & F_SEAL_SEAL) != 0) {
    return absl::InvalidArgumentError(
        "host memory is not sealed as required: it needs F_SEAL_SHRINK and F_SEAL_GROW, and must not have "
        "F_SEAL_SEAL, "
        "since the daemon adds seals");
  }
  RETURN_IF_ERROR(CheckKind(fd));
  struct stat info;
  if (fstat(fd.get(), &info) != 0) return absl::ErrnoToStatus(errno, "fstat failed");
  if (static_cast<uint64_t>(info.st_size) < bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("host memory has ", info.st_size, " bytes, fewer than the ", bytes, " of the request"));
  }
  RETURN_IF_ERROR(CheckPages(info));
  auto mapping = Mapping::Map(fd, bytes, Access::kReadWrite);
  if (!mapping.ok())
    return absl::InvalidArgumentError(absl::StrCat("host memory: ", mapping.status().message()));
  return ClientMemory(std::move(fd), *std::move(mapping));
}

// F_SEAL_FUTURE_WRITE forbids holes and new writable mappings.
absl::Status ClientMemory::Seal(bool for_executors) const {
  if (fcntl(fd_.get(), F_ADD_SEALS, for_executors ? F_SEAL_SEAL : F_SEAL_FUTURE_WRITE | F_SEAL_SEAL) != 0)
    return absl::InvalidArgumentError("host memory cannot be sealed (F_SEAL_FUTURE_WRITE, F_SEAL_SEAL)");
  struct stat info;
  if (fstat(fd_.get(), &info) != 0) return absl::ErrnoToStatus(errno, "fstat failed");
  return CheckPages(info);
}

}  // namespace xpud::transport
