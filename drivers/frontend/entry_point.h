// The description of a kernel that all back ends share, and the reader of a HOST module's kernel table
// (proto/base/ze_ext.h). Thread-safe.
#pragma once

#include <level_zero/ze_api.h>

#include <string>
#include <vector>

#include "proto/base/ze_ext.h"

namespace xpud::drivers {

struct EntryPoint {
  std::string name;
  std::vector<uint32_t> argument_sizes;
  xpud_host_kernel_fn_t host = nullptr;  // null if the kernel is not a HOST kernel
};

// Returns null if there is no kernel of that name. For EntryPoint and classes derived from it.
template <typename Entry>
const Entry* FindEntry(const std::vector<Entry>& entries, const char* name) {
  for (const Entry& entry : entries) {
    if (entry.name == name) return &entry;
  }
  return nullptr;
}

// The names are valid as long as the entries.
template <typename Entry>
std::vector<const char*> NamesOf(const std::vector<Entry>& entries) {
  std::vector<const char*> names;
  for (const Entry& entry : entries) names.push_back(entry.name.c_str());
  return names;
}

// Copies the table that a module's descriptor points at. Returns "", or the reason of a refusal.
std::string ReadHostTable(const ze_module_desc_t& desc, std::vector<EntryPoint>& entries);

}  // namespace xpud::drivers
