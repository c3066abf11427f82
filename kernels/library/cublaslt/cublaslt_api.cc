#include "kernels/library/cublaslt/cublaslt_api.h"

#include <dlfcn.h>
#include <glob.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace xpud::kernels::cublaslt {
namespace {

constexpr const char* kVersions[] = {"13", "12"};

std::string FileOf(const char* version) { return absl::StrCat("libcublasLt.so.", version); }

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

std::vector<std::string> Folders() {
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
      for (const char* const wheel : {"nvidia/cu13/lib", "nvidia/cublas/lib"})
        folders.push_back(absl::StrCat(python, "/lib/python3*/", packages, "/", wheel));
  return folders;
}

void* Open(const std::string& file) { return ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL); }

absl::StatusOr<void*> OpenLibrary() {
  if (const char* const named = std::getenv("XPUD_CUBLASLT"); named != nullptr && *named != '\0') {
    if (void* const library = Open(named)) return library;
    return absl::NotFoundError(absl::StrCat("XPUD_CUBLASLT cannot be loaded: ", ::dlerror()));
  }
  for (const char* const version : kVersions)
    if (void* const library = Open(FileOf(version))) return library;
  const std::vector<std::string> folders = Folders();
  for (const char* const version : kVersions)
    for (const std::string& folder : folders)
      for (const std::string& path : Expand(absl::StrCat(folder, "/", FileOf(version))))
        if (void* const library = Open(path)) return library;
  return absl::NotFoundError(absl::StrCat(FileOf(kVersions[0]), " (or .", kVersions[1],
                                          ") was not found; XPUD_CUBLASLT may name the file"));
}

template <typename Function>
bool Fetch(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(::dlsym(library, name));
  return function != nullptr;
}

absl::StatusOr<const Api*> Load() {
  const absl::StatusOr<void*> library = OpenLibrary();
  if (!library.ok()) return library.status();
  static Api api;
  const bool complete = Fetch(*library, "cublasLtCreate", api.create) &&
                        Fetch(*library, "cublasLtMatrixLayoutCreate", api.layout_create) &&
                        Fetch(*library, "cublasLtMatrixLayoutDestroy", api.layout_destroy) &&
                        Fetch(*library, "cublasLtMatrixLayoutSetAttribute", api.layout_set) &&
                        Fetch(*library, "cublasLtMatmulDescCreate", api.desc_create) &&
                        Fetch(*library, "cublasLtMatmulDescDestroy", api.desc_destroy) &&
                        Fetch(*library, "cublasLtMatmulDescSetAttribute", api.desc_set) &&
                        Fetch(*library, "cublasLtMatmulPreferenceCreate", api.preference_create) &&
                        Fetch(*library, "cublasLtMatmulPreferenceDestroy", api.preference_destroy) &&
                        Fetch(*library, "cublasLtMatmulPreferenceSetAttribute", api.preference_set) &&
                        Fetch(*library, "cublasLtMatmulAlgoGetHeuristic", api.heuristics) &&
                        Fetch(*library, "cublasLtMatmul", api.matmul);
  if (!complete) return absl::NotFoundError("cuBLASLt lacks a function: it is older than 12");
  return &api;
}

}  // namespace

absl::StatusOr<const Api*> Api::Get() {
  static const absl::StatusOr<const Api*> loaded = Load();
  return loaded;
}

}  // namespace xpud::kernels::cublaslt
