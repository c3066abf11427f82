#include "drivers/cuda/cuda_library.h"

#include <dlfcn.h>

#include <cstdlib>

namespace xpud::drivers::cuda {
namespace {

template <typename Function>
bool Find(void* library, const char* symbol, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, symbol));
  return function != nullptr;
}

std::string VersionText(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

// Returns null if the library has all functions; otherwise the first missing one.
const char* FindAll(void* library, CudaFunctions& functions) {
#define XPUD_CUDA_FIND(name, symbol, ...) \
  if (!Find(library, #symbol, functions.name)) return #symbol;
  XPUD_CUDA_FUNCTIONS(XPUD_CUDA_FIND)
#undef XPUD_CUDA_FIND
  return nullptr;
}

std::string ErrorName(void* library, CUresult result) {
  CUresult (*get_name)(CUresult, const char**) = nullptr;
  const char* name = nullptr;
  if (Find(library, "cuGetErrorName", get_name) && get_name(result, &name) == CUDA_SUCCESS && name != nullptr)
    return name;
  return "error " + std::to_string(result);
}

}  // namespace

const char* CudaLibraryName() {
  const char* const name = std::getenv("XPUD_CUDA_LIBRARY");
  return name == nullptr ? "libcuda.so.1" : name;
}

int LoadCuda(const char* name, CudaFunctions& functions, std::string& reason) {
  const std::string library_name = name;
  if (library_name.empty()) {
    reason = "switched off: XPUD_CUDA_LIBRARY is empty";
    return 0;
  }
  void* const library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* const error = dlerror();
    reason = error == nullptr ? library_name + " could not be opened" : error;
    return 0;
  }
  CUresult (*init)(unsigned) = nullptr;
  CUresult (*get_version)(int*) = nullptr;
  CUresult (*get_count)(int*) = nullptr;
  if (!Find(library, "cuInit", init) || !Find(library, "cuDriverGetVersion", get_version) ||
      !Find(library, "cuDeviceGetCount", get_count)) {
    reason = library_name + " is not CUDA's driver library: it lacks cuInit";
    return 0;
  }
  int version = 0;
  if (const CUresult result = get_version(&version); result != CUDA_SUCCESS) {
    reason = library_name + ": cuDriverGetVersion failed with " + ErrorName(library, result);
    return 0;
  }
  if (version < kMinimumVersion) {
    reason = library_name + " supports CUDA " + VersionText(version) + "; at least " +
             VersionText(kMinimumVersion) + " is needed: update the NVIDIA driver";
    return 0;
  }
  if (const CUresult result = init(0); result != CUDA_SUCCESS) {
    reason = library_name + ": cuInit failed with " + ErrorName(library, result);
    return 0;
  }
  int count = 0;
  if (const CUresult result = get_count(&count); result != CUDA_SUCCESS || count == 0) {
    reason = library_name + (result == CUDA_SUCCESS
                                 ? " found no GPU"
                                 : ": cuDeviceGetCount failed with " + ErrorName(library, result));
    return 0;
  }
  if (const char* const missing = FindAll(library, functions)) {
    reason = library_name + " lacks " + missing;
    return 0;
  }
  return count;
}

std::string Describe(CUresult result) {
  const char* name = nullptr;
  const char* text = nullptr;
  if (cu.cuGetErrorName(result, &name) != CUDA_SUCCESS || name == nullptr)
    return "CUDA error " + std::to_string(result);
  if (cu.cuGetErrorString(result, &text) != CUDA_SUCCESS || text == nullptr) return name;
  return std::string(name) + " (" + text + ")";
}

}  // namespace xpud::drivers::cuda
