// The modules of HOST kernels in this binary, by name: a launch names a kernel to another process by module
// and entry. Each module has static lifetime. Thread-safe.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/api/launch.h"
#include "proto/base/ze_ext.h"

namespace xpud::kernels {

constexpr std::string_view kAttentionModule = "attention";
constexpr std::string_view kCublasltModule = "cublaslt";
constexpr std::string_view kCudnnModule = "cudnn";
constexpr std::string_view kOnednnModule = "onednn";

// Returns nullptr if there is none of this name.
const xpud_host_module_t* FindHostModule(std::string_view name);

struct KernelArgument {
  uint32_t bytes;
  bool is_pointer;  // false also if that is not known
};
// Returns the arguments of a compiled or HOST kernel. NotFound for others.
absl::StatusOr<std::vector<KernelArgument>> ArgumentsOf(const Kernel& kernel);

// Loads the libraries that HOST kernels on GPUs use. This takes long, so call it on a separate thread while
// the device is opened. Ignores errors: the first launch reports a missing library.
void LoadGpuLibraries();
// Loads CUPTI, so that the driver finds it; see drivers/cuda/trace.h. Ignores errors: tracing reports that it
// is not supported.
void LoadGpuTracing();

// The entries of the table.
namespace attention {
extern const xpud_host_module_t kHostModule;
}
namespace cublaslt {
extern const xpud_host_module_t kHostModule;
void LoadLibrary();
}  // namespace cublaslt
namespace cudnn {
extern const xpud_host_module_t kHostModule;
}
namespace onednn {
extern const xpud_host_module_t kHostModule;
}

}  // namespace xpud::kernels
