// What an operator or an agent grants to those who come by a claim's doors. A value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "daemon/tenant/tenant.h"
#include "daemon/tenant/time_grant.h"

namespace xpud {

struct Claim {
  static constexpr size_t kMaxKey = 63, kMaxLabels = 16, kMaxLabelName = 63, kMaxLabelValue = 253;
  static constexpr size_t kMaxHolders = 64;
  static constexpr uint32_t kMaxSessions = 1024;
  static constexpr uint64_t kMaxLifetimeMs = uint64_t{10} * 365 * 24 * 3600 * 1000;  // ten years

  std::string key;
  std::vector<uint32_t> devices;  // lanes' numbers; the claim's clients count them from 0, in this order
  TimeGrant time = {};            // on each device
  uint64_t memory_least = 0;      // bytes on each device
  std::optional<uint64_t> memory_most = {};
  std::optional<uint32_t> sessions_most = {};
  std::map<std::string, std::string> labels = {};
  std::vector<Tenant> holders = {};       // users and gateways' tenants who have it at the ordinary socket
  std::optional<uint32_t> door_uid = {};  // the user who has it at doors/KEY
  uint64_t lifetime_ms = 0;               // from its creation, or from the last change of this; 0: for ever
  bool drained = false;                   // no new sessions

  Tenant tenant() const { return Tenant::OfClaim(key); }
  bool operator==(const Claim&) const = default;
};

// Whether the key may name a claim: [a-z0-9][a-z0-9._-]{0,62}.
absl::Status CheckKey(std::string_view key);
// Whether a daemon with so many devices can have such a claim. Returns InvalidArgument: what was found, what
// is allowed.
absl::Status CheckClaim(const Claim& claim, size_t devices);

// "realtime", "interactive" or "batch".
std::string_view NameOf(PriorityClass priority);
std::optional<PriorityClass> PriorityClassOf(std::string_view name);

// Parts of a device's time as they are read and written: 3000 is "30%", 50 "0.5%".
std::string PercentText(uint32_t hundredths);

}  // namespace xpud
