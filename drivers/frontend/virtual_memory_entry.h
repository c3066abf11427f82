// The entry point of physical memory that later versions of Level Zero have: found by name
// (proto/base/ze_ext.h).
#pragma once

#include "proto/base/ze_ext.h"

namespace xpud::drivers {

ze_result_t PhysicalMemGetProperties(ze_context_handle_t context, ze_physical_mem_handle_t memory,
                                     xpud_physical_mem_properties_t* properties);

}  // namespace xpud::drivers
