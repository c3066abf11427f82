#include "kernels/library/host_modules.h"

#include "kernels/library/cublaslt/cublaslt_api.h"

namespace xpud::kernels {

const xpud_host_module_t* FindHostModule(std::string_view name) {
  static constexpr struct {
    std::string_view name;
    const xpud_host_module_t* module;
  } kModules[] = {{kAttentionModule, &attention::kHostModule},
                  {kCublasltModule, &cublaslt::kHostModule},
                  {kOnednnModule, &onednn::kHostModule}};
  for (const auto& known : kModules)
    if (known.name == name) return known.module;
  return nullptr;
}

void LoadGpuLibraries() { (void)cublaslt::Api::Get(); }

}  // namespace xpud::kernels
