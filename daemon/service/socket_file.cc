#include "daemon/service/socket_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "proto/base/status_macros.h"
#include "proto/base/trust.h"
#include "proto/base/unix_address.h"

namespace xpud::service {
namespace {

absl::Status Errno(const std::string& what) { return absl::ErrnoToStatus(errno, what); }

// The lock file is not written through a link, or if another user has put a file in its place.
absl::Status CheckLock(const UniqueFd& lock, const std::string& path) {
  struct stat info;
  if (fstat(lock.get(), &info) != 0) return Errno(absl::StrCat("cannot read the attributes of ", path));
  if (S_ISREG(info.st_mode) && info.st_uid == geteuid() && info.st_nlink == 1 &&
      !OthersMayWrite(info.st_mode))
    return absl::OkStatus();
  return absl::PermissionDeniedError(absl::StrFormat(
      "%s belongs to uid %d with mode %04o; it has to be a file of uid %d that nobody else may "
      "write, with one name: remove it",
      path, info.st_uid, info.st_mode & 07777, geteuid()));
}

}  // namespace

absl::Status RemoveStaleSocket(const std::string& path) {
  struct stat info;
  if (lstat(path.c_str(), &info) != 0)
    return errno == ENOENT ? absl::OkStatus() : Errno(absl::StrCat("cannot read the attributes of ", path));
  if (!S_ISSOCK(info.st_mode) || info.st_uid != geteuid()) {
    return absl::PermissionDeniedError(absl::StrCat(
        path, S_ISSOCK(info.st_mode) ? " is a socket of uid " : " is not a socket, and belongs to uid ",
        info.st_uid, "; only a socket of uid ", geteuid(), " is replaced: remove it"));
  }
  return unlink(path.c_str()) == 0 ? absl::OkStatus() : Errno(absl::StrCat("cannot remove ", path));
}

absl::StatusOr<UniqueFd> LockBeside(const std::string& path) {
  RETURN_IF_ERROR(CheckFolderIsOurs(std::filesystem::path(path).parent_path().string()));
  UniqueFd lock(open((path + ".lock").c_str(), O_CREAT | O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600));
  if (!lock.valid()) return Errno(absl::StrCat("cannot open ", path, ".lock"));
  RETURN_IF_ERROR(CheckLock(lock, path + ".lock"));
  if (flock(lock.get(), LOCK_EX | LOCK_NB) != 0)
    return absl::AlreadyExistsError(absl::StrCat("another xpud daemon serves ", path));
  const std::string pid = absl::StrCat(getpid(), "\n");  // tells operators which process holds it
  if (ftruncate(lock.get(), 0) != 0 || write(lock.get(), pid.data(), pid.size()) < 0)
    return Errno("cannot write the lock file");
  return lock;
}

namespace {

// A socket that is bound to `path`, whose file allows no more than the owner's part of `mode` yet.
absl::StatusOr<UniqueFd> BindAt(const std::string& path, int type, unsigned mode) {
  ASSIGN_OR_RETURN(const sockaddr_un address, UnixAddress(path));
  RETURN_IF_ERROR(RemoveStaleSocket(path));
  UniqueFd fd(socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return Errno("socket failed");
  // The file gets the mode of the socket, less the umask, which all threads share and nobody changes; then
  // what it is to have. So it never allows more.
  if (fchmod(fd.get(), 0600 & mode) != 0) return Errno("fchmod failed");
  if (bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0)
    return Errno(absl::StrCat("cannot bind ", path));
  return fd;
}

absl::StatusOr<UniqueFd> Listen(UniqueFd fd, const std::string& path, unsigned mode) {
  if (chmod(path.c_str(), mode) != 0) return Errno(absl::StrCat("cannot set the mode of ", path));
  if (listen(fd.get(), 128) != 0) return Errno("listen failed");
  return fd;
}

}  // namespace

absl::StatusOr<UniqueFd> ListenAt(const std::string& path, unsigned mode) {
  ASSIGN_OR_RETURN(UniqueFd fd, BindAt(path, SOCK_SEQPACKET, mode));
  return Listen(std::move(fd), path, mode);
}

absl::StatusOr<UniqueFd> ListenForGroup(const std::string& path, uint32_t group) {
  constexpr unsigned kOwnerAndGroup = 0660;
  ASSIGN_OR_RETURN(UniqueFd fd, BindAt(path, SOCK_STREAM, kOwnerAndGroup));
  if (chown(path.c_str(), static_cast<uid_t>(-1), group) != 0)
    return Errno(absl::StrCat("cannot give ", path, " to the group ", group, ", which this user must be in"));
  return Listen(std::move(fd), path, kOwnerAndGroup);
}

}  // namespace xpud::service
