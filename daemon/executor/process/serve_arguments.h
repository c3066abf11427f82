// The arguments of an executor process, whose program is the daemon's. A plain value.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

namespace xpud::executor::process {

struct ServeArguments {
  std::string back_end = {};  // of the device
  int device = 0;             // its index in the back end
  std::string driver_library = {};
  int rings = 1;
  std::string confine = {};  // how main confines the process

  // A program's arguments, its name included.
  std::vector<std::string> ToArgv() const;
  // Returns nothing if these are not an executor's.
  static std::optional<ServeArguments> FromArgv(std::span<char* const> argv);
};

}  // namespace xpud::executor::process
