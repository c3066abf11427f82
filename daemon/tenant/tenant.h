// Whom memory, quotas and places are counted for: a user of this machine or, where that user is a gateway's,
// one of those it speaks for.
#pragma once

#include <compare>
#include <cstdint>
#include <string>

namespace xpud {

struct Tenant {
  uint32_t uid = 0;
  std::string name = {};  // that the gateway vouches for; empty: the user

  auto operator<=>(const Tenant&) const = default;
  // "uid:1000", or "uid:1000/name".
  std::string Text() const { return "uid:" + std::to_string(uid) + (name.empty() ? "" : "/" + name); }
};

}  // namespace xpud
