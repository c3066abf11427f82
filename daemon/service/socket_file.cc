#include "daemon/service/socket_file.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"
#include "proto/base/unix_address.h"

namespace xpud::service {
namespace {

absl::Status Errno(const std::string& what) { return absl::ErrnoToStatus(errno, what); }

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

absl::StatusOr<UniqueFd> ListenAt(const std::string& path, unsigned mode) {
  ASSIGN_OR_RETURN(const sockaddr_un address, UnixAddress(path));
  RETURN_IF_ERROR(RemoveStaleSocket(path));
  UniqueFd fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return Errno("socket failed");
  const mode_t mask = umask(0777 & ~mode);
  const int bound = bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address));
  umask(mask);
  if (bound != 0) return Errno(absl::StrCat("cannot bind ", path));
  if (listen(fd.get(), 128) != 0) return Errno("listen failed");
  return fd;
}

}  // namespace xpud::service
