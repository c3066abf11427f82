#include "drivers/frontend/module.h"

namespace xpud::drivers {

ze_result_t Kernel::SetArgument(uint32_t index, size_t size, const void* value) {
  if (index >= entry_.argument_sizes.size()) return ZE_RESULT_ERROR_INVALID_KERNEL_ARGUMENT_INDEX;
  if (size != entry_.argument_sizes[index]) return ZE_RESULT_ERROR_INVALID_KERNEL_ARGUMENT_SIZE;
  arguments_.Set(index, value, size);
  return ZE_RESULT_SUCCESS;
}

}  // namespace xpud::drivers
