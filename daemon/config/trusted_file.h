// Reads files that only their owner may write: configurations. Thread-safe.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace xpud::config {

// Returns NotFound if there is no file, PermissionDenied if others may write it, and InvalidArgument if it is
// not a regular file or larger than 1 MiB.
absl::StatusOr<std::string> ReadTrustedFile(const std::string& path);

}  // namespace xpud::config
