// Checks whether a folder is one in which only this user and root could have created or changed files.
// Thread-safe.
#pragma once

#include <sys/types.h>

#include <string>

#include "absl/status/status.h"

namespace xpud {

// REQUIRES: the folder exists. It must belong to this user or root, only its owner may write, and no folder
// above may let others move it away. Returns NotFound, or PermissionDenied with what was found, what is
// allowed and what to do.
absl::Status CheckFolderIsOurs(const std::string& path);

// Whether no other user but root can move away or exchange what this user creates in the folder: it belongs
// to this user or root, and others may not write there unless it is sticky, like /tmp. Otherwise returns
// PermissionDenied, as above. Does not look at the folders above it.
absl::Status CheckFolderAbove(const std::string& path);

// Whether a mode lets the group or others write.
constexpr bool OthersMayWrite(mode_t mode) { return (mode & 022) != 0; }

}  // namespace xpud
