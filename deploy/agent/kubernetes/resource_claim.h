// A ResourceClaim of resource.k8s.io/v1, as far as it concerns this driver on this node, and the claim of the
// daemon that it becomes. The object is the API server's, and its parameters are a user's: nothing in it is
// trusted. Thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "deploy/agent/kubernetes/json.h"
#include "proto/control/xpud.pb.h"

namespace xpud::agent::kubernetes {

struct Allocation {
  struct Pod {
    std::string name, uid;
  };
  // A device that was allocated for a request.
  struct Result {
    std::string request, pool, device, share_id;
    uint32_t index = 0;  // the daemon's number of the device
  };

  std::string name_space, name, uid;
  std::vector<Pod> pods;  // for which the claim is reserved
  bool reserved = false;  // for these, or for consumers of other kinds
  std::vector<Result> results;
  // Of each of its devices.
  uint32_t share = 0;  // 1 to 100
  uint64_t memory = 0;
  std::string class_name;  // empty: the daemon's default
  uint32_t most_time = 0;  // hundredths of a per cent; 0: no limit
  std::optional<uint32_t> sessions;
};

// Reads the claim with this uid on this node. Results and parameters of other drivers are ignored. Returns
// FailedPrecondition if the object has another uid, is not allocated, or has nothing of this driver, and
// InvalidArgument, with what was found and what is allowed, for everything else.
absl::StatusOr<Allocation> ReadAllocation(const Json& claim, std::string_view uid, std::string_view node);

// The daemon's claim. A share of s is weight s and at least 0.95 s per cent of the time, since the daemon
// guarantees at most 95% of a device.
v1::Claim ClaimOf(const Allocation& allocation);

}  // namespace xpud::agent::kubernetes
