// Whether a folder is one in which nobody but us and root could have put or changed something: what lies
// there is then what we put there. Any thread.
#pragma once

#include <sys/types.h>

#include <string>

#include "absl/status/status.h"

namespace xpud {

// An existing folder: it belongs to us or to root and only its owner may write, and no folder above it lets
// others move it away. Errors: NotFound; PermissionDenied says what was found, what is allowed and what to
// do.
absl::Status CheckFolderIsOurs(const std::string& path);

// Whether a file's or folder's mode lets its group or others write.
constexpr bool OthersMayWrite(mode_t mode) { return (mode & 022) != 0; }

}  // namespace xpud
