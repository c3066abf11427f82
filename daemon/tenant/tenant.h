// The unit to which memory, device time, quotas and places are charged: a claim, or without one a user of
// this machine or, if that user runs a gateway, one of the gateway's tenants.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <utility>

namespace xpud {

struct Tenant {
  uint32_t uid = 0;
  std::string name = {};   // the tenant's name as the gateway has set it; empty: the user itself
  std::string claim = {};  // the key of a claim, whose users do not matter: uid and name are 0 and empty

  static Tenant OfClaim(std::string key) { return {.claim = std::move(key)}; }
  auto operator<=>(const Tenant&) const = default;
  // "uid:1000", "uid:1000/name" or "claim:web".
  std::string Text() const {
    if (!claim.empty()) return "claim:" + claim;
    return "uid:" + std::to_string(uid) + (name.empty() ? "" : "/" + name);
  }
};

}  // namespace xpud
