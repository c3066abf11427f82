#include "kernels/library/host_modules.h"

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

}  // namespace xpud::kernels
