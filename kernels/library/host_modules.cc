#include "kernels/library/host_modules.h"

#include "absl/strings/str_cat.h"
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

absl::StatusOr<std::vector<KernelArgument>> ArgumentsOf(const Kernel& kernel) {
  std::vector<KernelArgument> arguments;
  if (kernel.signature != kNoSignature) {
    for (const ArgType type : kernel.arguments)
      arguments.push_back({BytesOf(type), type == ArgType::kPointer});
    return arguments;
  }
  const bool host = kernel.module->format == ModuleImage::Format::kHost;
  const xpud_host_module_t* const module = host ? FindHostModule(kernel.module->bytes) : nullptr;
  for (uint32_t i = 0; module != nullptr && i < module->num_kernels; ++i) {
    const xpud_host_kernel_t& found = module->kernels[i];
    if (kernel.entry != found.name) continue;
    for (uint32_t a = 0; a < found.num_args; ++a) arguments.push_back({found.arg_sizes[a], false});
    return arguments;
  }
  return absl::NotFoundError(absl::StrCat("kernel ", kernel.entry, " does not say what arguments it has"));
}

void LoadGpuLibraries() { cublaslt::LoadLibrary(); }

void LoadGpuTracing() {
  static constexpr const char* kVersions[] = {"13", "12"};
  static constexpr const char* kWheels[] = {"nvidia/cu13/lib", "nvidia/cuda_cupti/lib"};
  (void)cuda::Open({"libcupti.so", kVersions, "XPUD_CUPTI", kWheels});
}

}  // namespace xpud::kernels
