// The unit to which memory, quotas and places are charged: a user of this machine or, if that user runs a
// gateway, one of the gateway's tenants.
#pragma once

#include <compare>
#include <cstdint>
#include <string>

namespace xpud {

struct Tenant {
  uint32_t uid = 0;
  std::string name = {};  // the tenant's name as the gateway has set it; empty: the user itself

  auto operator<=>(const Tenant&) const = default;
  // "uid:1000" or "uid:1000/name".
  std::string Text() const { return "uid:" + std::to_string(uid) + (name.empty() ? "" : "/" + name); }
};

}  // namespace xpud
