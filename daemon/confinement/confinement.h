// How xpud's processes give up what they do not need. The daemon and its spawner of executors first lose the
// files (ConfineFiles, while there is one thread), then the system calls (ConfineCalls). An executor loses
// what is left of both at once.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "daemon/confinement/filter.h"

namespace xpud::confinement {

enum class Mode { kOn, kLog, kOff };  // kLog: refuses nothing; the kernel's log names what would be refused

struct FilesOptions {
  std::string cache_directory;   // empty: none
  std::string socket_directory;  // empty: none
  std::string driver_library;    // empty: beside the binary
  // Whose entries below /proc may be written: CUDA does not start where it cannot name its threads. What
  // holds for a spawner holds for its executors, too, which then keep their own only.
  enum class Processes { kNone, kOwn, kAll } processes = Processes::kNone;
  bool keeps_signals = true;  // as Places
  // Stays readable, with what else lies in its folder: whoever changes it puts another file in its place.
  // With it, the machine's accounts, which it names. Empty: none.
  std::string configuration = {};
};

// "on", "log", "off".
std::string_view WordOf(Mode mode);
std::optional<Mode> ModeOf(std::string_view word);

// What cannot be had on this kernel is named in `in_force`, which is for the log, and is no error.
void ConfineFiles(Mode mode, const FilesOptions& options, std::string& in_force);
void ConfineCalls(Mode mode, Roles role, std::string& in_force);

}  // namespace xpud::confinement
