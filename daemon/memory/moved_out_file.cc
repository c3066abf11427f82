#include "daemon/memory/moved_out_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/descriptor_error.h"
#include "proto/base/out_of_memory.h"
#include "proto/base/status_macros.h"
#include "proto/base/trust.h"

namespace xpud::memory {
namespace {

// Without O_DIRECT, the page cache would take as much of the machine's memory again.
UniqueFd OpenUnnamed(const std::string& folder, int flags) {
  UniqueFd fd(open(folder.c_str(), O_TMPFILE | O_EXCL | O_RDWR | O_CLOEXEC | flags, 0600));
  const bool lacks_unnamed = errno == EOPNOTSUPP || errno == EISDIR || errno == ENOENT;
  if (fd.valid() || !lacks_unnamed) return fd;
  const std::string path = absl::StrCat(folder, "/xpud-moved-out-", getpid());
  fd.Reset(open(path.c_str(), O_CREAT | O_EXCL | O_NOFOLLOW | O_RDWR | O_CLOEXEC | flags, 0600));
  if (fd.valid() && unlink(path.c_str()) != 0) fd.Reset();
  return fd;
}

absl::StatusOr<UniqueFd> OpenIn(const std::string& folder) {
  struct stat info;
  if (stat(folder.c_str(), &info) != 0)
    return absl::ErrnoToStatus(
        errno, absl::StrCat("the folder ", folder, " cannot be used; create it, or name another"));
  if (!S_ISDIR(info.st_mode)) return absl::InvalidArgumentError(absl::StrCat(folder, " is not a folder"));
  RETURN_IF_ERROR(CheckFolderIsOurs(folder));
  UniqueFd fd = OpenUnnamed(folder, O_DIRECT);
  if (!fd.valid() && errno == EINVAL) fd = OpenUnnamed(folder, 0);
  if (!fd.valid()) return DescriptorError(absl::StrCat("making a file in ", folder));
  return fd;
}

uint64_t FreeBytes(const UniqueFd& fd) {
  struct statvfs space = {};
  return fstatvfs(fd.get(), &space) == 0 ? uint64_t{space.f_bavail} * space.f_frsize : 0;
}

// A file system may give all that it has before it says that this was too little. So that is looked at first.
absl::Status Reserve(const UniqueFd& fd, const std::string& folder, uint64_t bytes) {
  const uint64_t free = FreeBytes(fd);
  errno = ENOSPC;
  if (bytes <= free && fallocate(fd.get(), 0, 0, static_cast<off_t>(bytes)) == 0) return absl::OkStatus();
  const int error = errno;
  if (error == EOPNOTSUPP) {
    return absl::FailedPreconditionError(
        absl::StrCat("the file system of ", folder, " cannot reserve space; use one that can, such as ext4"));
  }
  if (error != ENOSPC && error != EDQUOT) {
    return absl::ErrnoToStatus(error,
                               absl::StrCat("reserving ", BytesText(bytes), " in ", folder, " failed"));
  }
  return absl::ResourceExhaustedError(absl::StrCat(folder, " has no room for ", BytesText(bytes),
                                                   "; free are ", BytesText(free),
                                                   " there, or less by a quota"));
}

// Calls some(at) until it has done `bytes` in all.
template <typename Some>
absl::Status DoAll(uint64_t bytes, const char* what, const Some& some) {
  for (uint64_t at = 0; at < bytes;) {
    const ssize_t done = some(at);
    if (done < 0 && errno == EINTR) continue;
    if (done < 0)
      return absl::ErrnoToStatus(errno, absl::StrCat(what, " what is moved out to files has failed"));
    if (done == 0) return absl::DataLossError(absl::StrCat(what, " a file has ended early"));
    at += static_cast<uint64_t>(done);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::shared_ptr<const MovedOutFile>> MovedOutFile::Create(const std::string& folder,
                                                                         uint64_t bytes) {
  ASSIGN_OR_RETURN(UniqueFd fd, OpenIn(folder));
  RETURN_IF_ERROR(Reserve(fd, folder, bytes));
  return std::shared_ptr<const MovedOutFile>(new MovedOutFile(std::move(fd)));
}

absl::Status MovedOutFile::Write(std::span<const std::byte> bytes, uint64_t offset) const {
  return DoAll(bytes.size(), "writing",
               [&](uint64_t at) { return WriteSome(bytes.subspan(at), offset + at); });
}

absl::Status MovedOutFile::Read(std::span<std::byte> bytes, uint64_t offset) const {
  return DoAll(bytes.size(), "reading",
               [&](uint64_t at) { return ReadSome(bytes.subspan(at), offset + at); });
}

ssize_t MovedOutFile::WriteSome(std::span<const std::byte> bytes, uint64_t offset) const {
  return pwrite(fd_.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
}

ssize_t MovedOutFile::ReadSome(std::span<std::byte> bytes, uint64_t offset) const {
  return pread(fd_.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
}

}  // namespace xpud::memory
