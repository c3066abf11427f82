#include "daemon/confinement/landlock.h"

#include <fcntl.h>
#include <linux/landlock.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"
#include "proto/base/unique_fd.h"

namespace xpud::confinement {
namespace {

// Newer than Debian 12's headers.
constexpr uint64_t kTruncate = uint64_t{1} << 14;                      // version 3
constexpr uint64_t kIoctlDevice = uint64_t{1} << 15;                   // version 5
constexpr uint64_t kScopeAbstractSockets = 1, kScopeSignals = 1 << 1;  // version 6
struct Ruleset {
  uint64_t files;
  uint64_t network;
  uint64_t scoped;
};

constexpr uint64_t kRead = LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR;
constexpr uint64_t kReadWrite = kRead | LANDLOCK_ACCESS_FS_WRITE_FILE | kTruncate;
constexpr uint64_t kOfFiles = LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_WRITE_FILE |
                              LANDLOCK_ACCESS_FS_READ_FILE | kTruncate | kIoctlDevice;

int Version() {
  const long version = syscall(SYS_landlock_create_ruleset, nullptr, 0, LANDLOCK_CREATE_RULESET_VERSION);
  return version < 0 ? 0 : static_cast<int>(version);
}

uint64_t FileRights(int version) {
  constexpr uint64_t kFirst = (uint64_t{1} << 13) - 1;
  return kFirst | (version >= 2 ? LANDLOCK_ACCESS_FS_REFER : 0) | (version >= 3 ? kTruncate : 0) |
         (version >= 5 ? kIoctlDevice : 0);
}

absl::Status Allow(const UniqueFd& rules, const std::string& path, uint64_t rights) {
  const UniqueFd fd(open(path.c_str(), O_PATH | O_CLOEXEC));
  struct stat info;
  if (!fd.valid() || fstat(fd.get(), &info) != 0) return absl::OkStatus();
  const landlock_path_beneath_attr rule = {S_ISDIR(info.st_mode) ? rights : rights & kOfFiles, fd.get()};
  if (syscall(SYS_landlock_add_rule, rules.get(), LANDLOCK_RULE_PATH_BENEATH, &rule, 0) != 0)
    return absl::ErrnoToStatus(errno, absl::StrCat("landlock_add_rule failed for ", path));
  return absl::OkStatus();
}

absl::Status AllowAll(const UniqueFd& rules, const std::vector<std::string>& paths, uint64_t rights) {
  for (const std::string& path : paths) RETURN_IF_ERROR(Allow(rules, path, rights));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<int> RestrictFiles(const AllowedPaths& paths) {
  const int version = Version();
  if (version == 0) return 0;
  const uint64_t known = FileRights(version);
  const uint64_t scopes = kScopeAbstractSockets | (paths.keeps_signals ? kScopeSignals : 0);
  const Ruleset ruleset = {known, 0, version >= 6 ? scopes : 0};
  const size_t bytes = version >= 6 ? sizeof(ruleset) : sizeof(ruleset.files);
  const UniqueFd rules(static_cast<int>(syscall(SYS_landlock_create_ruleset, &ruleset, bytes, 0)));
  if (!rules.valid()) return absl::ErrnoToStatus(errno, "landlock_create_ruleset failed");
  constexpr uint64_t kWrite = kReadWrite | LANDLOCK_ACCESS_FS_MAKE_REG | LANDLOCK_ACCESS_FS_REMOVE_FILE;
  constexpr uint64_t kSockets = kRead | LANDLOCK_ACCESS_FS_MAKE_SOCK | LANDLOCK_ACCESS_FS_REMOVE_FILE;
  RETURN_IF_ERROR(AllowAll(rules, paths.list, LANDLOCK_ACCESS_FS_READ_DIR));
  RETURN_IF_ERROR(AllowAll(rules, paths.read, kRead & known));
  RETURN_IF_ERROR(AllowAll(rules, paths.change, kReadWrite & known));
  RETURN_IF_ERROR(AllowAll(rules, paths.devices, (kReadWrite | kIoctlDevice) & known));
  RETURN_IF_ERROR(AllowAll(rules, paths.write, kWrite & known));
  RETURN_IF_ERROR(AllowAll(rules, paths.sockets, kSockets & known));
  constexpr uint64_t kDoors = kSockets | LANDLOCK_ACCESS_FS_MAKE_DIR | LANDLOCK_ACCESS_FS_REMOVE_DIR;
  RETURN_IF_ERROR(AllowAll(rules, paths.doors, kDoors & known));
  RETURN_IF_ERROR(AllowAll(rules, paths.execute, (kRead | LANDLOCK_ACCESS_FS_EXECUTE) & known));
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
    return absl::ErrnoToStatus(errno, "prctl(PR_SET_NO_NEW_PRIVS) failed");
  if (syscall(SYS_landlock_restrict_self, rules.get(), 0) != 0)
    return absl::ErrnoToStatus(errno, "landlock_restrict_self failed");
  return version;
}

}  // namespace xpud::confinement
