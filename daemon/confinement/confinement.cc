#include "daemon/confinement/confinement.h"

#include <glob.h>
#include <link.h>

#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "daemon/confinement/landlock.h"

namespace xpud::confinement {
namespace {

constexpr std::string_view kWords[] = {"on", "log", "off"};

using Paths = std::vector<std::string>;

std::string FolderOf(const std::string& file) {
  std::error_code error;
  return std::filesystem::weakly_canonical(file, error).parent_path().string();
}

void AddMatches(const char* pattern, Paths& paths) {
  glob_t found = {};
  if (glob(pattern, GLOB_TILDE, nullptr, &found) == 0)
    paths.insert(paths.end(), found.gl_pathv, found.gl_pathv + found.gl_pathc);
  globfree(&found);
}

// Adds the folders of the files that an environment variable lists. A name without a folder is searched for
// in the other folders.
void AddFilesNamed(const char* variable, Paths& paths) {
  const char* const value = std::getenv(variable);
  for (const auto file : absl::StrSplit(value == nullptr ? "" : value, ','))
    if (absl::StrContains(file, '/')) paths.push_back(FolderOf(std::string(file)));
}

// Adds the folders that an environment variable lists.
void AddFoldersNamed(const char* variable, Paths& paths) {
  const char* const value = std::getenv(variable);
  for (const auto folder : absl::StrSplit(value == nullptr ? "" : value, ':', absl::SkipEmpty()))
    paths.emplace_back(folder);
}

// Adds the folders of this binary and its libraries, wherever they are installed.
int AddFolder(dl_phdr_info* object, size_t /*bytes*/, void* paths) {
  const std::string name = object->dlpi_name;
  if (absl::StrContains(name, '/')) static_cast<Paths*>(paths)->push_back(FolderOf(name));
  return 0;
}

// NVIDIA's Python packages load each other's libraries: nvidia/cublas/lib, nvidia/nvjitlink/lib.
void AddNvidiaPackages(Paths& paths) {
  for (const std::string& folder : Paths(paths)) {
    if (const size_t at = folder.rfind("/nvidia/"); at != std::string::npos)
      paths.push_back(folder.substr(0, at + std::string_view("/nvidia").size()));
  }
}

Paths Libraries(const FilesOptions& options) {
  Paths paths = {"/usr", "/lib", "/lib64", "/opt"};
  const std::string binary = FolderOf("/proc/self/exe");
  paths.push_back(binary);
  paths.push_back(absl::StrCat(binary, "/../lib"));
  dl_iterate_phdr(AddFolder, &paths);
  if (!options.driver_library.empty()) paths.push_back(FolderOf(options.driver_library));
  for (const char* const variable : {"ZE_ENABLE_ALT_DRIVERS", "XPUD_CUDA_LIBRARY", "XPUD_CUBLASLT",
                                     "XPUD_CUDNN", "XPUD_NVRTC", "XPUD_CUPTI"})
    AddFilesNamed(variable, paths);
  for (const char* const variable : {"LD_LIBRARY_PATH", "VIRTUAL_ENV"}) AddFoldersNamed(variable, paths);
  AddMatches("~/.local/lib", paths);
  AddNvidiaPackages(paths);
  return paths;
}

AllowedPaths PathsFor(const FilesOptions& options) {
  AllowedPaths paths;
  paths.keeps_signals = options.keeps_signals;
  paths.list = {"/dev"};  // an executor enumerates its devices anew
  paths.read = Libraries(options);
  if (options.reads_only_libraries) {
    paths.list.clear();
    paths.read.emplace_back("/proc/self");
    return paths;
  }
  for (const char* const path : {"/proc", "/sys", "/etc/ld.so.cache", "/etc/localtime", "/etc/nvidia"})
    paths.read.emplace_back(path);
  for (const char* const path : {"/dev/null", "/dev/zero", "/dev/random", "/dev/urandom", "/dev/dri"})
    paths.devices.emplace_back(path);
  AddMatches("/dev/nvidia*", paths.devices);
  if (options.processes == FilesOptions::Processes::kOwn) paths.change.emplace_back("/proc/self/task");
  if (options.processes == FilesOptions::Processes::kAll) paths.change.emplace_back("/proc");
  for (const std::string& directory :
       {options.cache_directory, options.dump_directory, options.state_directory})
    if (!directory.empty()) paths.write.push_back(directory);
  if (!options.configuration.empty()) {
    paths.read.push_back(FolderOf(options.configuration));
    for (const char* const path : {"/etc/passwd", "/etc/nsswitch.conf"}) paths.read.emplace_back(path);
  }
  if (!options.socket_directory.empty()) paths.sockets.push_back(options.socket_directory);
  paths.doors = options.door_directories;
  std::error_code error;
  paths.execute = {std::filesystem::read_symlink("/proc/self/exe", error).string(),
                   "/lib64/ld-linux-x86-64.so.2"};
  return paths;
}

std::string Text(const absl::Status& status) { return absl::StrCat("\"", status.message(), "\""); }

}  // namespace

std::string_view WordOf(Mode mode) { return kWords[static_cast<size_t>(mode)]; }

std::optional<Mode> ModeOf(std::string_view word) {
  for (const Mode mode : {Mode::kOn, Mode::kLog, Mode::kOff})
    if (WordOf(mode) == word) return mode;
  return std::nullopt;
}

void ConfineFiles(Mode mode, const FilesOptions& options, std::string& in_force) {
  if (mode != Mode::kOn) {
    absl::StrAppend(&in_force, "landlock=off");
    return;
  }
  const auto version = RestrictFiles(PathsFor(options));
  absl::StrAppend(&in_force, "landlock=",
                  !version.ok()   ? Text(version.status())
                  : *version == 0 ? "\"not in this kernel\""
                                  : absl::StrCat("on landlock_version=", *version));
}

void ConfineCalls(Mode mode, Roles role, std::string& in_force) {
  if (mode == Mode::kOff) {
    absl::StrAppend(&in_force, " seccomp=off");
    return;
  }
  const absl::Status status = InstallFilter(role, mode == Mode::kLog ? Refusal::kLog : Refusal::kError);
  absl::StrAppend(&in_force, " seccomp=", !status.ok() ? Text(status) : mode == Mode::kLog ? "log" : "on");
}

}  // namespace xpud::confinement
