#include "daemon/config/trusted_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "proto/base/trust.h"
#include "proto/base/unique_fd.h"

namespace xpud::config {
namespace {

constexpr size_t kMaxBytes = 1 << 20;

}  // namespace

absl::StatusOr<std::string> ReadTrustedFile(const std::string& path) {
  const UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd.valid()) return absl::ErrnoToStatus(errno, absl::StrCat("cannot read ", path));
  struct stat info;
  if (fstat(fd.get(), &info) != 0 || !S_ISREG(info.st_mode))
    return absl::InvalidArgumentError(absl::StrCat(path, " is not a regular file"));
  if (OthersMayWrite(info.st_mode)) {
    return absl::PermissionDeniedError(absl::StrFormat(
        "%s has mode %04o, but only its owner may write it: chmod go-w", path, info.st_mode & 07777));
  }
  std::string text(kMaxBytes + 1, '\0');
  size_t size = 0;
  while (size < text.size()) {
    const ssize_t count = read(fd.get(), text.data() + size, text.size() - size);
    if (count < 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot read ", path));
    if (count == 0) break;
    size += static_cast<size_t>(count);
  }
  if (size > kMaxBytes) return absl::InvalidArgumentError(absl::StrCat(path, " is larger than 1 MiB"));
  text.resize(size);
  return text;
}

}  // namespace xpud::config
