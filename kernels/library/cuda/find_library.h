// Finds the libraries of CUDA that are loaded with dlopen, because xpud is built without them. Thread-safe.
#pragma once

#include <span>

#include "absl/status/statusor.h"

namespace xpud::kernels::cuda {

struct Library {
  const char* file;                       // without its version: "libcublasLt.so"
  std::span<const char* const> versions;  // the preferred one first
  const char* variable;                   // of the environment; it may name the file
  std::span<const char* const> wheels;    // folders below site-packages
};

// Loads a library, which is never unloaded. Searches, in this order: the file that the variable names; the
// dynamic linker's folders; the folder of libcuda; CUDA's folder; PyTorch's wheels in the usual places.
// Returns NotFound if there is none, or if the named file cannot be loaded.
absl::StatusOr<void*> Open(const Library& library);

// Looks up a function. Returns false if the library lacks it.
bool Fetch(void* library, const char* name, void** function);
template <typename Function>
bool Fetch(void* library, const char* name, Function& function) {
  void* found = nullptr;
  const bool there = Fetch(library, name, &found);
  function = reinterpret_cast<Function>(found);
  return there;
}

}  // namespace xpud::kernels::cuda
