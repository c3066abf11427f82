// What the drivers offer beyond the tables of API 1.4: extension names, and functions found by name.
// Constant; any thread.
#pragma once

#include <cstdint>
#include <span>

namespace xpud::drivers {

struct Extension {
  const char* name;
  uint32_t version;
};

std::span<const Extension> Extensions();

// Null when no back end in common offers it.
void* FindExtensionFunction(const char* name);

}  // namespace xpud::drivers
