// Drops rights that xpud's processes do not need. The daemon and its spawner of executors first restrict
// files (ConfineFiles, while there is one thread), then system calls (ConfineCalls). An executor inherits the
// spawner's restrictions and adds its own at once.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/confinement/filter.h"

namespace xpud::confinement {

enum class Mode { kOn, kLog, kOff };  // kLog: refuses nothing; the kernel's log names what would be refused

struct FilesOptions {
  std::string cache_directory;   // empty: none
  std::string socket_directory;  // empty: none
  std::string driver_library;    // empty: beside the binary
  // Processes whose entries in /proc may be written: CUDA fails to start if it cannot name its threads. An
  // executor inherits the spawner's kAll and then reduces it to kOwn.
  enum class Processes { kNone, kOwn, kAll } processes = Processes::kNone;
  bool keeps_signals = true;  // see AllowedPaths
  // The configuration file. It stays readable with all other files in its folder, because editors replace
  // files. The account files stay readable with it. Empty: none.
  std::string configuration = {};
  std::string dump_directory = {};                 // for files of the flight recorder; empty: none
  std::string state_directory = {};                // for files of claims; empty: none
  std::vector<std::string> door_directories = {};  // for claims' doors
  bool reads_only_libraries = false;               // no device, no list of files, no program
};

// Returns "on", "log" or "off".
std::string_view WordOf(Mode mode);
std::optional<Mode> ModeOf(std::string_view word);

// Adds a note to `in_force`, which is logged, for restrictions that this kernel lacks. That is not an error.
void ConfineFiles(Mode mode, const FilesOptions& options, std::string& in_force);
void ConfineCalls(Mode mode, Roles role, std::string& in_force);

}  // namespace xpud::confinement
