#include "sdk/client/address.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"
#include "proto/base/trust.h"
#include "sdk/client/connect.h"

namespace xpud::client {
namespace {

using Whose = DaemonPlace::Whose;

constexpr char kSystemDirectory[] = "/run/xpud";
constexpr char kTemporary[] = "/tmp";

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// A folder of this user's own is made in `parent` only if the user could remove it again. After `sudo -E`,
// the environment names folders of another user.
bool IsUsable(const std::string& parent) {
  return !parent.empty() && access(parent.c_str(), W_OK) == 0 && CheckFolderAbove(parent).ok();
}

// $XDG_RUNTIME_DIR/xpud, or xpud-UID in the temporary folder.
std::string UserDirectory() {
  if (const std::string runtime = Environment("XDG_RUNTIME_DIR"); IsUsable(runtime)) return runtime + "/xpud";
  const std::string temporary = Environment("TMPDIR");
  return absl::StrCat(IsUsable(temporary) ? temporary : kTemporary, "/xpud-", geteuid());
}

absl::Status CheckIsOursAlone(const std::string& folder) {
  struct stat info;
  if (lstat(folder.c_str(), &info) != 0)
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot look at ", folder));
  if (!S_ISDIR(info.st_mode) || info.st_uid != geteuid() || (info.st_mode & 077) != 0) {
    return absl::PermissionDeniedError(
        absl::StrCat(folder, " must be a directory of mode 0700 that belongs to uid ", geteuid(),
                     "; remove it, or set XDG_RUNTIME_DIR to a folder of your own, or XPUD_ADDRESS"));
  }
  return CheckFolderAbove(std::filesystem::path(folder).parent_path().string());
}

absl::Status NobodyAnswers(const DaemonPlace& place) {
  std::string text = absl::StrCat("no xpud daemon answers at ", place.address);
  if (place.whose == Whose::kSystem) {
    absl::StrAppend(
        &text,
        ", where this machine's daemon should be: see \"systemctl status xpud\"; to use a private "
        "daemon, remove the folder ",
        kSystemDirectory, " or set XPUD_ADDRESS to its socket");
  }
  return absl::NotFoundError(text);
}

}  // namespace

std::string EnvironmentAddress() { return Environment("XPUD_ADDRESS"); }

DaemonPlace FindDaemonPlace(const std::string& explicit_address) {
  const std::string address = explicit_address.empty() ? EnvironmentAddress() : explicit_address;
  if (!address.empty()) return {Whose::kNamed, address, ""};
  if (access(kSystemDirectory, F_OK) == 0)
    return {Whose::kSystem, absl::StrCat(kSystemDirectory, "/xpud.sock"), ""};
  const std::string folder = UserDirectory();
  return {Whose::kPrivate, folder + "/xpud.sock", folder};
}

absl::StatusOr<UniqueFd> ConnectToPlace(const DaemonPlace& place) {
  if (place.whose == Whose::kPrivate) {  // another user must not answer there
    const absl::Status ours = CheckIsOursAlone(place.folder);
    if (absl::IsNotFound(ours)) return NobodyAnswers(place);
    RETURN_IF_ERROR(ours);
  }
  auto socket = ConnectSocket(place.address);
  if (absl::IsNotFound(socket.status())) return NobodyAnswers(place);
  return socket;
}

absl::Status MakeUserDirectory(const std::string& folder) {
  if (mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) {
    return absl::ErrnoToStatus(
        errno, absl::StrCat("cannot make ", folder,
                            " for a private daemon; set XDG_RUNTIME_DIR to a folder that you may write"));
  }
  return CheckIsOursAlone(folder);
}

absl::StatusOr<std::string> FindDaemonSocket(const std::string& explicit_address) {
  const DaemonPlace place = FindDaemonPlace(explicit_address);
  RETURN_IF_ERROR(ConnectToPlace(place).status());
  return place.address;
}

}  // namespace xpud::client
