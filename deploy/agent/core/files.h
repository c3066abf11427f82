// Small files, which others may read and write: no reader ever sees a part of one, also after a crash.
// Thread-safe.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace xpud::agent {

// The end of the names of unfinished files, which a crash leaves behind.
inline constexpr char kUnfinished[] = ".unfinished";

// Gives the file `path` this content and mode 0644. The old content stays if that fails. Returns the reason:
// a full disk, a folder that is not there or that is read-only.
absl::Status ReplaceFile(const std::string& path, std::string_view content);
// Returns NotFound, or the reason why it cannot be read; InvalidArgument if it is no regular file, and
// OutOfRange if it is longer than `most` bytes.
absl::StatusOr<std::string> ReadSmallFile(const std::string& path, size_t most);

// Ensures that the folder exists, and those above it. Returns the reason if it cannot be made.
absl::Status MakeFolders(const std::string& path);

}  // namespace xpud::agent
