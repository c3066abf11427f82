// What every back end knows of a kernel, and reading a HOST module's table of them (proto/base/ze_ext.h). Any
// thread.
#pragma once

#include <level_zero/ze_api.h>

#include <string>
#include <vector>

#include "proto/base/ze_ext.h"

namespace xpud::drivers {

struct EntryPoint {
  std::string name;
  std::vector<uint32_t> argument_sizes;
  xpud_host_kernel_fn_t host = nullptr;  // null where the kernel is code of another kind
};

// Null when there is none of that name. For EntryPoint and what derives from it.
template <typename Entry>
const Entry* FindEntry(const std::vector<Entry>& entries, const char* name) {
  for (const Entry& entry : entries) {
    if (entry.name == name) return &entry;
  }
  return nullptr;
}

// Valid as long as the entries.
template <typename Entry>
std::vector<const char*> NamesOf(const std::vector<Entry>& entries) {
  std::vector<const char*> names;
  for (const Entry& entry : entries) names.push_back(entry.name.c_str());
  return names;
}

// Copies the table that a module's descriptor points at. Empty, or why it was refused.
std::string ReadHostTable(const ze_module_desc_t& desc, std::vector<EntryPoint>& entries);

}  // namespace xpud::drivers
