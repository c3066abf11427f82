#include "sdk/client/helper_process.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

extern char** environ;

namespace xpud::client {
namespace {

// A folder can have the program's name: an installed xpud has lib/xpud beside libxpud.so.
bool IsExecutable(const std::string& path) {
  std::error_code error;
  return std::filesystem::is_regular_file(path, error) && access(path.c_str(), X_OK) == 0;
}

std::string OwnDirectory() {
  Dl_info info;
  if (dladdr(reinterpret_cast<void*>(&OwnDirectory), &info) == 0 || info.dli_fname == nullptr) return "";
  std::error_code error;
  return std::filesystem::canonical(info.dli_fname, error).parent_path().string();
}

}  // namespace

absl::StatusOr<std::string> FindBinary(const std::string& name, const char* variable) {
  if (const char* named = std::getenv(variable); named != nullptr && *named != '\0') {
    if (IsExecutable(named)) return std::string(named);
    return absl::NotFoundError(
        absl::StrCat(variable, " names ", named, ", which is no program that can be run"));
  }
  const std::string own = OwnDirectory();
  for (const char* relative : {"/", "/bin/", "/../bin/", "/../../bin/", "/../../../bin/"}) {
    if (std::string path = absl::StrCat(own, relative, name); IsExecutable(path)) return path;
  }
  const char* path = std::getenv("PATH");
  for (const auto& directory : absl::StrSplit(path == nullptr ? "" : path, ':')) {
    if (std::string candidate = absl::StrCat(directory, "/", name); IsExecutable(candidate)) return candidate;
  }
  return absl::NotFoundError(
      absl::StrCat("the program ", name, " was not found: set ", variable, ", or put it on PATH"));
}

absl::Status RunInBackground(const std::string& binary, std::vector<std::string> arguments,
                             const std::string& output, int third) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, 1, output.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  posix_spawn_file_actions_adddup2(&actions, 1, 2);
  posix_spawn_file_actions_adddup2(&actions, third, 3);
  arguments.insert(arguments.begin(), binary);
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  pid_t child;
  const int error = posix_spawn(&child, binary.c_str(), &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) return absl::ErrnoToStatus(error, absl::StrCat("cannot run ", binary));
  int status;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return absl::OkStatus();
}

}  // namespace xpud::client
