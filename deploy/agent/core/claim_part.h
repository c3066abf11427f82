// The part of a device that a claim of any engine has. Pure functions.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "proto/control/xpud.pb.h"

namespace xpud::agent {

// Shares are hundredths of what the daemon guarantees of a device at all.
inline constexpr uint32_t kMaxShare = 100;
// That is 95% of the device's time; in hundredths of a per cent, as a claim has it.
inline constexpr uint32_t kTimeOfAShare = 95;

// The daemon's classes, the best first.
inline constexpr std::array<std::string_view, 3> kClasses = {"realtime", "interactive", "batch"};
// The rank of a class: 0 is the best. Returns nullopt if there is no such class.
inline std::optional<size_t> RankOf(std::string_view name) {
  const auto found = std::ranges::find(kClasses, name);
  if (found == kClasses.end()) return std::nullopt;
  return static_cast<size_t>(found - kClasses.begin());
}

// Gives the claim this share of each of its devices: as its weight, and as the time that it has at least.
inline void SetShare(v1::Claim& claim, uint32_t share) {
  claim.set_weight(share);
  claim.set_time_least(kTimeOfAShare * share);
}

// Keeps memory free for the claim on each of its devices, and allows it no more.
inline void SetMemory(v1::Claim& claim, uint64_t bytes) {
  claim.set_memory_least_bytes(bytes);
  claim.set_memory_most_bytes(bytes);
}

// Returns "" if the claim has no such label.
inline std::string LabelOf(const v1::Claim& claim, const char* name) {
  const auto found = claim.labels().find(name);
  return found != claim.labels().end() ? found->second : "";
}

}  // namespace xpud::agent
