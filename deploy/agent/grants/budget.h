// What agent.yaml allows each user, and what a user has. Values; thread-safe.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "deploy/agent/core/claim_part.h"
#include "deploy/agent/grants/grants.pb.h"
#include "deploy/agent/grants/process.h"
#include "proto/control/xpud.pb.h"

namespace xpud::agent {

// What a user may have. Share and memory are for all of its grants together, on each device.
struct Budget {
  static constexpr uint32_t kMaxClaims = 1024;
  static constexpr uint64_t kMinLeaseMs = 1000, kMaxLeaseMs = uint64_t{30} * 24 * 3600 * 1000;

  uint32_t share = kMaxShare;           // hundredths of what the daemon guarantees of a device's time
  std::optional<uint64_t> memory = {};  // bytes; nullopt: no limit
  uint32_t claims = 16;                 // grants at a time
  std::string best_class = "interactive";
  uint64_t lease_ms = 3'600'000;  // the longest

  bool operator==(const Budget&) const = default;
};

struct Budgets {
  std::map<uint32_t, Budget> users = {};                 // by uid
  std::vector<std::pair<uint32_t, Budget>> groups = {};  // by gid, each once; for each user by itself
  std::optional<Budget> fallback = {};                   // of users who are in none of these
  uint32_t agent_uid = 0;                                // has no limit, like root

  // The entry of the user, else the first one for a group of the caller, else the default. Returns nullopt if
  // the user has no limit, and PermissionDenied, with what the administrator has to add, if there is no
  // entry.
  absl::StatusOr<std::optional<Budget>> Of(const Caller& caller) const;
  bool operator==(const Budgets&) const = default;
};

// A refusal that stays the same whatever other grants there are: ResourceExhausted, marked as final.
absl::Status NeverAllowed(const std::string& message);
bool IsFinal(const absl::Status& refusal);

// What a user's grants have.
class Usage {
 public:
  // `claims`: those of all grants. One that ends does not count.
  Usage(const std::vector<v1::Claim>& claims, uint32_t uid);

  // Whether the user may have the grant too. REQUIRES: Complete(request, &budget) is OK. Returns
  // ResourceExhausted with what is asked, what the user has and what it may have; final if it is more than
  // the user may have in all. `user`: as messages name it.
  absl::Status Admit(const grants::v1::GrantRequest& request, const Budget& budget,
                     const std::string& user) const;

 private:
  struct OnDevice {
    uint32_t share = 0;
    uint64_t memory = 0;
  };
  std::map<uint32_t, OnDevice> devices_;
  uint32_t claims_ = 0;
};

}  // namespace xpud::agent
