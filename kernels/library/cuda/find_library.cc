#include "kernels/library/cuda/find_library.h"

#include <dlfcn.h>
#include <glob.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace xpud::kernels::cuda {
namespace {

std::vector<std::string> Expand(const std::string& pattern) {
  glob_t found = {};
  std::vector<std::string> paths;
  if (::glob(pattern.c_str(), GLOB_TILDE, nullptr, &found) == 0)
    paths.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  ::globfree(&found);
  return paths;
}

// The folder of libcuda, if that is loaded.
std::vector<std::string> DriverFolder() {
  void* const driver = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  Dl_info info = {};
  if (driver == nullptr || ::dladdr(::dlsym(driver, "cuInit"), &info) == 0 || info.dli_fname == nullptr)
    return {};
  const std::string file = info.dli_fname;
  return {file.substr(0, file.find_last_of('/'))};
}

std::vector<std::string> Folders(std::span<const char* const> wheels) {
  std::vector<std::string> folders = DriverFolder();
  folders.push_back("/usr/local/cuda/lib64");
  folders.push_back("/usr/local/cuda/targets/x86_64-linux/lib");
  std::vector<std::string> pythons;
  if (const char* const environment = std::getenv("VIRTUAL_ENV")) pythons.push_back(environment);
  for (const char* const place :
       {"~/.local", "/usr/local", "/usr", "/opt/*", "/opt/*/.venv", "/opt/*/envs/*"})
    pythons.push_back(place);
  for (const std::string& python : pythons)
    for (const char* const packages : {"site-packages", "dist-packages"})
      for (const char* const wheel : wheels)
        folders.push_back(absl::StrCat(python, "/lib/python3*/", packages, "/", wheel));
  return folders;
}

void* OpenFile(const std::string& file) { return ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL); }

}  // namespace

absl::StatusOr<void*> Open(const Library& library) {
  if (const char* const named = std::getenv(library.variable); named != nullptr && *named != '\0') {
    if (void* const opened = OpenFile(named)) return opened;
    return absl::NotFoundError(absl::StrCat(library.variable, " cannot be loaded: ", ::dlerror()));
  }
  std::vector<std::string> files;
  for (const char* const version : library.versions)
    files.push_back(absl::StrCat(library.file, ".", version));
  for (const std::string& file : files)
    if (void* const opened = OpenFile(file)) return opened;
  const std::vector<std::string> folders = Folders(library.wheels);
  for (const std::string& file : files)
    for (const std::string& folder : folders)
      for (const std::string& path : Expand(absl::StrCat(folder, "/", file)))
        if (void* const opened = OpenFile(path)) return opened;
  return absl::NotFoundError(
      absl::StrCat(files.front(), " was not found; ", library.variable, " may name the file"));
}

bool Fetch(void* library, const char* name, void** function) {
  *function = ::dlsym(library, name);
  return *function != nullptr;
}

}  // namespace xpud::kernels::cuda
