// Requests for grants, and the claims that they become. Pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "deploy/agent/grants/budget.h"
#include "deploy/agent/grants/grants.pb.h"
#include "deploy/agent/grants/process.h"
#include "proto/control/xpud.pb.h"

namespace xpud::agent {

inline constexpr char kGrantsEngine[] = "grants";
// The lease of a grant that the agent renews while a process lives.
inline constexpr uint64_t kProcessLeaseMs = 300'000;

// "user ray (uid 1000)", for messages.
std::string UserText(uint32_t uid);

// Checks a request and sets what it leaves open. `budget`: null for a user without limit. Returns
// InvalidArgument with what was found and what is allowed; ResourceExhausted for a class or a lease beyond
// the budget. After it, `lease_ms` is 0 only if the agent renews the grant.
absl::Status Complete(grants::v1::GrantRequest& request, const Budget* budget, const std::string& user);
// The same for the lease of a grant that exists; 0 stays 0.
absl::Status CheckLease(uint64_t lease_ms, const Budget* budget, const std::string& user);

// The key of a user's grant of this name: always the same. For the empty name it is random.
std::string KeyOf(uint32_t uid, std::string_view name);
// The user of a grant's key. Returns nullopt if it is no such key.
std::optional<uint32_t> OwnerOf(std::string_view key);

// The claim of a grant. `process`: whose end ends it, if the request says so. REQUIRES: Complete(request) is
// OK.
v1::Claim ClaimOf(const grants::v1::GrantRequest& request, const std::string& key, uint32_t uid,
                  const std::optional<ProcessName>& process);
// The fields in which a grant differs from the claim that the request would become: "share, class". The lease
// is no difference, nor are devices if the request names none. Empty: the claim is what is asked.
std::string DifferencesOf(const v1::Claim& claim, const v1::Claim& wanted);

// The process whose end ends a grant; nullopt: its lease alone does.
std::optional<ProcessName> ProcessOf(const v1::Claim& claim);
// Whether the agent renews the grant.
bool AgentRenews(const v1::Claim& claim);
// What a user sees of its grant.
grants::v1::GrantState StateOf(const v1::Claim& claim);
std::string AddressOf(const v1::Claim& claim);

}  // namespace xpud::agent
