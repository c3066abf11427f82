// Restricts the files that this process may open, by Landlock. Applies to the calling thread and to threads
// and processes that it starts. REQUIRES: there is one thread. Files that are already open stay usable.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace xpud::confinement {

// Files, and folders with everything below them. Missing ones are ignored.
struct AllowedPaths {
  std::vector<std::string> list;  // names in folders only
  std::vector<std::string> read;
  std::vector<std::string> change;   // read and write, but create none
  std::vector<std::string> devices;  // read, write, ioctl
  std::vector<std::string> write;    // read, write, and create files
  std::vector<std::string> sockets;  // create and remove
  std::vector<std::string> doors;    // the same, and create and remove folders for them
  std::vector<std::string> execute;
  // Whether this process may not signal processes outside its restricted domain.
  bool keeps_signals = true;
};

// Returns the version of Landlock's interface that is in force, or 0 if this kernel has no Landlock and
// nothing is restricted.
absl::StatusOr<int> RestrictFiles(const AllowedPaths& paths);

}  // namespace xpud::confinement
