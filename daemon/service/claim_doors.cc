#include "daemon/service/claim_doors.h"

#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/service/socket_file.h"
#include "proto/base/status_macros.h"
#include "proto/base/trust.h"

namespace xpud::service {
namespace {

constexpr char kSocket[] = "/xpud.sock";
constexpr unsigned kSocketMode = 0666;  // the folders say who may pass
constexpr mode_t kOwnersOnly = 0700, kPassable = 0711;

absl::Status MakeFolder(const std::string& path, mode_t mode) {
  if (mkdir(path.c_str(), kOwnersOnly) != 0 && errno != EEXIST)
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot make the folder ", path));
  struct stat info;
  if (lstat(path.c_str(), &info) != 0)
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot read the attributes of ", path));
  if (!S_ISDIR(info.st_mode) || info.st_uid != geteuid())
    return absl::PermissionDeniedError(
        absl::StrCat(path, " is not a folder of uid ", geteuid(), ": remove it"));
  if ((info.st_mode & 07777) != mode && chmod(path.c_str(), mode) != 0)
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot set the mode of ", path));
  return absl::OkStatus();
}

absl::StatusOr<Door> MakeDoor(const std::string& folder) {
  RETURN_IF_ERROR(MakeFolder(folder, kPassable));
  ASSIGN_OR_RETURN(UniqueFd socket, ListenAt(folder + kSocket, kSocketMode));
  return Door{.socket = std::move(socket), .file = folder + kSocket};
}

void RemoveDoor(const std::string& folder) {
  unlink((folder + kSocket).c_str());
  rmdir(folder.c_str());
}

}  // namespace

ClaimDoors::ClaimDoors(std::string folder) : folder_(std::move(folder)) {
  made_ = CheckFolderIsOurs(folder_);
  if (made_.ok()) made_ = MakeFolder(Of("claims"), kOwnersOnly);
  if (made_.ok()) made_ = MakeFolder(Of("doors"), kPassable);
}

absl::Status ClaimDoors::CheckPaths(const std::string& key) const {
  constexpr size_t kMost = sizeof(sockaddr_un::sun_path) - 1;
  const std::string path = FolderOf(key) + kSocket;  // the longer one
  if (path.size() <= kMost) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat("the path of the door, ", path, ", has ", path.size(),
                                                   " bytes; a socket's may have ", kMost,
                                                   ": take a shorter key"));
}

absl::StatusOr<std::vector<Door>> ClaimDoors::Make(const Claim& claim) const {
  if (!made_.ok())
    return absl::FailedPreconditionError(absl::StrCat("claims have no doors here: ", made_.message()));
  std::vector<Door> doors;
  ASSIGN_OR_RETURN(doors.emplace_back(), MakeDoor(FolderOf(claim.key)));
  if (claim.door_uid) {
    ASSIGN_OR_RETURN(doors.emplace_back(), MakeDoor(UserFolderOf(claim.key)));
    doors.back().only_uid = claim.door_uid;
  } else {
    RemoveDoor(UserFolderOf(claim.key));
  }
  for (Door& door : doors) door.claim = claim.key;
  return doors;
}

void ClaimDoors::Remove(const std::string& key) const {
  RemoveDoor(FolderOf(key));
  RemoveDoor(UserFolderOf(key));
}

void ClaimDoors::RemoveRoots() const {
  for (const std::string& folder : Roots()) rmdir(folder.c_str());
}

}  // namespace xpud::service
