// The opaque parameters of a ResourceClaim or DeviceClass for this driver: ClaimParameters of xpud.dev/v1,
// which users write. Thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "deploy/agent/kubernetes/json.h"

namespace xpud::agent::kubernetes {

struct ClaimParameters {
  std::optional<std::string> class_name;  // "class": "realtime", "interactive" or "batch"
  std::optional<uint32_t> most_time;      // "mostTime": 50, 12.5 or "50%"; here hundredths of a per cent
  std::optional<uint32_t> sessions;       // "sessions": 1 to 1024

  // What `other` sets replaces what is here.
  void Override(const ClaimParameters& other);
  // Adds what `other` sets. Returns InvalidArgument if both set a parameter differently.
  absl::Status Join(const ClaimParameters& other);
};

// Returns InvalidArgument, with what was found and what is allowed, for an unknown field, a wrong type or a
// value that is out of range.
absl::StatusOr<ClaimParameters> ReadClaimParameters(const Json& parameters);

}  // namespace xpud::agent::kubernetes
