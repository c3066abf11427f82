#include "proto/base/trust.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "proto/base/status_macros.h"

namespace xpud {
namespace {

absl::Status Denied(const std::string& path, const struct stat& found, std::string_view allowed) {
  return absl::PermissionDeniedError(absl::StrFormat("%s belongs to uid %d with mode %04o; %s", path,
                                                     found.st_uid, found.st_mode & 07777,
                                                     std::string(allowed)));
}

absl::StatusOr<struct stat> Look(const std::string& path) {
  struct stat info;
  if (lstat(path.c_str(), &info) != 0)
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot read the attributes of ", path));
  return info;
}

// The owner of the root folder can change everything: root, or the user that a user namespace shows in its
// place.
absl::Status CheckOwner(const std::string& path, const struct stat& info) {
  ASSIGN_OR_RETURN(const struct stat top, Look("/"));
  if (info.st_uid == 0 || info.st_uid == geteuid() || info.st_uid == top.st_uid) return absl::OkStatus();
  return Denied(path, info,
                absl::StrCat("it has to belong to uid ", geteuid(), " or to root: name another folder"));
}

}  // namespace

absl::Status CheckFolderAbove(const std::string& path) {
  ASSIGN_OR_RETURN(const struct stat info, Look(path));
  RETURN_IF_ERROR(CheckOwner(path, info));
  if ((info.st_mode & S_IWOTH) == 0 || (info.st_mode & S_ISVTX) != 0) return absl::OkStatus();
  return Denied(path, info, absl::StrCat("others may not write there: chmod o-w ", path));
}

absl::Status CheckFolderIsOurs(const std::string& path) {
  std::error_code error;
  const std::filesystem::path real = std::filesystem::canonical(path, error);
  if (error) return absl::ErrnoToStatus(error.value(), absl::StrCat("cannot use the folder ", path));
  ASSIGN_OR_RETURN(const struct stat info, Look(real.string()));
  if (!S_ISDIR(info.st_mode)) return absl::PermissionDeniedError(absl::StrCat(path, " is not a folder"));
  RETURN_IF_ERROR(CheckOwner(path, info));
  if (OthersMayWrite(info.st_mode))
    return Denied(path, info, absl::StrCat("only its owner may write there: chmod go-w ", path));
  for (std::filesystem::path above = real.parent_path();; above = above.parent_path()) {
    RETURN_IF_ERROR(CheckFolderAbove(above.string()));
    if (above == above.parent_path()) return absl::OkStatus();
  }
}

}  // namespace xpud
