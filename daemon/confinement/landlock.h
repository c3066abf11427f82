// What files this process may still open, by Landlock. It counts for the calling thread and for what that
// starts, so it is called before there are other threads. Files that are open stay so.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace xpud::confinement {

// Files and folders with all below them. One that does not exist is passed over.
struct Places {
  std::vector<std::string> list;  // folders' names only
  std::vector<std::string> read;
  std::vector<std::string> change;   // read, write, but make no new ones
  std::vector<std::string> devices;  // read, write, ioctl
  std::vector<std::string> write;    // files, of which new ones may be made
  std::vector<std::string> sockets;  // may be made and removed
  std::vector<std::string> execute;
  // Whether processes that are not confined here and now, nor start from here, get no signals from here.
  bool keeps_signals = true;
};

// The version of Landlock's interface that is now in force; 0 where this kernel has none, and nothing is.
absl::StatusOr<int> RestrictPlaces(const Places& places);

}  // namespace xpud::confinement
