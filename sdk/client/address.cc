#include "sdk/client/address.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/base/status_macros.h"
#include "sdk/client/connect.h"

namespace xpud::client {
namespace {

constexpr char kSystemDirectory[] = "/run/xpud";

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

absl::Status CheckIsOursAlone(const std::string& directory) {
  struct stat info;
  if (lstat(directory.c_str(), &info) != 0)
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot look at ", directory));
  if (!S_ISDIR(info.st_mode) || info.st_uid != geteuid() || (info.st_mode & 077) != 0) {
    return absl::PermissionDeniedError(absl::StrCat(directory,
                                                    " must be a directory of mode 0700 that belongs to uid ",
                                                    geteuid(), "; remove it, or set XPUD_ADDRESS"));
  }
  return absl::OkStatus();
}

}  // namespace

std::string EnvironmentAddress() { return Environment("XPUD_ADDRESS"); }

absl::StatusOr<std::string> UserDirectory() {
  std::string directory = Environment("XDG_RUNTIME_DIR");
  if (!directory.empty() && access(directory.c_str(), W_OK) == 0) {
    directory += "/xpud";
  } else {
    const std::string temporary = Environment("TMPDIR");
    directory = absl::StrCat(temporary.empty() ? "/tmp" : temporary, "/xpud-", geteuid());
  }
  if (mkdir(directory.c_str(), 0700) != 0 && errno != EEXIST) {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot make ", directory));
  }
  RETURN_IF_ERROR(CheckIsOursAlone(directory));
  return directory;
}

absl::StatusOr<std::vector<std::string>> DaemonSockets(const std::string& explicit_address) {
  const std::string address = explicit_address.empty() ? EnvironmentAddress() : explicit_address;
  if (!address.empty()) return std::vector<std::string>{address};
  std::vector<std::string> sockets;
  if (access(kSystemDirectory, F_OK) == 0) sockets.push_back(absl::StrCat(kSystemDirectory, "/xpud.sock"));
  ASSIGN_OR_RETURN(const std::string directory, UserDirectory());
  sockets.push_back(absl::StrCat(directory, "/xpud.sock"));
  return sockets;
}

absl::StatusOr<std::string> FindDaemonSocket(const std::string& explicit_address) {
  ASSIGN_OR_RETURN(const std::vector<std::string> sockets, DaemonSockets(explicit_address));
  for (const std::string& path : sockets) {
    const auto socket = ConnectSocket(path);
    if (socket.ok()) return path;
    if (!absl::IsNotFound(socket.status())) return socket.status();
  }
  return absl::NotFoundError(absl::StrCat("no xpud daemon answers at ", absl::StrJoin(sockets, " or ")));
}

}  // namespace xpud::client
