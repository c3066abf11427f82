#include "kernels/library/host_modules.h"

#include "kernels/library/cuda/find_library.h"

namespace xpud::kernels {

const xpud_host_module_t* FindHostModule(std::string_view name) {
  static constexpr struct {
    std::string_view name;
    const xpud_host_module_t* module;
  } kModules[] = {{kAttentionModule, &attention::kHostModule},
                  {kCublasltModule, &cublaslt::kHostModule},
                  {kCudnnModule, &cudnn::kHostModule},
                  {kOnednnModule, &onednn::kHostModule}};
  for (const auto& known : kModules)
    if (known.name == name) return known.module;
  return nullptr;
}

void LoadGpuLibraries() { cublaslt::LoadLibrary(); }

void LoadGpuTracing() {
  static constexpr const char* kVersions[] = {"13", "12"};
  static constexpr const char* kWheels[] = {"nvidia/cu13/lib", "nvidia/cuda_cupti/lib"};
  (void)cuda::Open({"libcupti.so", kVersions, "XPUD_CUPTI", kWheels});
}

}  // namespace xpud::kernels
