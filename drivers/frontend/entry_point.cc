#include "drivers/frontend/entry_point.h"

#include <cstring>

namespace xpud::drivers {

std::string ReadHostTable(const ze_module_desc_t& desc, std::vector<EntryPoint>& entries) {
  if (desc.inputSize != sizeof(xpud_host_module_t)) {
    return "a HOST module is one xpud_host_module_t of " + std::to_string(sizeof(xpud_host_module_t)) +
           " bytes; inputSize is " + std::to_string(desc.inputSize);
  }
  xpud_host_module_t table;
  std::memcpy(&table, desc.pInputModule, sizeof(table));
  if (table.version != XPUD_HOST_MODULE_VERSION) {
    return "HOST module version " + std::to_string(table.version) + "; this driver knows version " +
           std::to_string(XPUD_HOST_MODULE_VERSION);
  }
  for (uint32_t i = 0; i < table.num_kernels; ++i) {
    const xpud_host_kernel_t& kernel = table.kernels[i];
    if (kernel.name == nullptr || kernel.run == nullptr) return "a HOST kernel lacks its name or function";
    entries.push_back({kernel.name, {kernel.arg_sizes, kernel.arg_sizes + kernel.num_args}, kernel.run});
  }
  return "";
}

}  // namespace xpud::drivers
