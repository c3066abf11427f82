// Reading a HOST module's table (proto/base/ze_ext.h): what all back ends that take one share. Any thread.
#pragma once

#include <level_zero/ze_api.h>

#include <string>
#include <vector>

#include "proto/base/ze_ext.h"

namespace xpud::drivers {

struct EntryPoint {
  std::string name;
  xpud_host_kernel_fn_t function;
  std::vector<uint32_t> argument_sizes;
};

// Copies the table that a module's descriptor points at. Empty, or why it was refused.
std::string ReadHostTable(const ze_module_desc_t& desc, std::vector<EntryPoint>& entries);

}  // namespace xpud::drivers
