// A driver's extensions of API 1.4: their names, and functions found by name. Constant; thread-safe.
#pragma once

#include <cstdint>
#include <span>

namespace xpud::drivers {

class Driver;

struct Extension {
  const char* name;
  uint32_t version;
};

std::span<const Extension> Extensions(const Driver& driver);

struct NamedFunction {
  const char* name;
  void* address;
};

// Both return null if there is no such function.
void* Find(std::span<const NamedFunction> functions, const char* name);
void* FindExtensionFunction(const Driver& driver, const char* name);  // of those that all back ends offer

}  // namespace xpud::drivers
