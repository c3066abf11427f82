#include "deploy/agent/grants/budget.h"

#include <algorithm>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "daemon/config/user.h"
#include "deploy/agent/grants/request.h"
#include "proto/base/out_of_memory.h"
#include "proto/base/text.h"

namespace xpud::agent {
namespace {

constexpr char kAdvice[] = "; return a grant first, or ask the administrator to raise it in agent.yaml";
constexpr char kFinalPayload[] = "xpud.dev/final";

}  // namespace

absl::StatusOr<std::optional<Budget>> Budgets::Of(const Caller& caller) const {
  const uint32_t uid = caller.uid;
  if (uid == 0 || uid == agent_uid) return std::optional<Budget>();
  if (const auto found = users.find(uid); found != users.end()) return std::optional(found->second);
  for (const auto& [gid, budget] : groups)
    if (std::ranges::find(caller.groups, gid) != caller.groups.end()) return std::optional(budget);
  if (fallback) return fallback;
  const std::string name = PrintableText(UserName(uid), 64);
  return absl::PermissionDeniedError(absl::StrCat(
      UserText(uid),
      " may have no grants; the administrator allows them in agent.yaml, with \"grants: {users: {", name,
      ": {share: 25}}}\", with \"grants: {groups: {GROUP: {share: 25}}}\" for each user of a group, or with "
      "\"grants: {default: {share: 25}}\" for all users"));
}

absl::Status NeverAllowed(const std::string& message) {
  absl::Status status = absl::ResourceExhaustedError(message);
  status.SetPayload(kFinalPayload, absl::Cord());
  return status;
}

bool IsFinal(const absl::Status& refusal) { return refusal.GetPayload(kFinalPayload).has_value(); }

Usage::Usage(const std::vector<v1::Claim>& claims, uint32_t uid) {
  for (const v1::Claim& claim : claims) {
    if (claim.ends() || OwnerOf(claim.key()) != uid) continue;
    ++claims_;
    for (const uint32_t device : claim.devices()) {
      devices_[device].share += claim.weight();
      devices_[device].memory += claim.memory_most_bytes();
    }
  }
}

absl::Status Usage::Admit(const grants::v1::GrantRequest& request, const Budget& budget,
                          const std::string& user) const {
  if (claims_ >= budget.claims) {
    return absl::ResourceExhaustedError(absl::StrCat("one more grant was asked; ", user, " has ", claims_,
                                                     " and may have ", budget.claims, " at a time", kAdvice));
  }
  const auto refuse = [](bool is_final, const std::string& message) {
    return is_final ? NeverAllowed(message) : absl::ResourceExhaustedError(message);
  };
  const auto check = [&](uint32_t device, const OnDevice& used) -> absl::Status {
    if (uint64_t{used.share} + request.share() > budget.share) {
      return refuse(request.share() > budget.share,
                    absl::StrCat("share ", request.share(), " was asked; on device ", device, " ", user,
                                 " has ", used.share, " and may have ", budget.share, " in all", kAdvice));
    }
    const uint64_t allowed = budget.memory.value_or(UINT64_MAX);
    if (used.memory > allowed || request.memory_bytes() > allowed - used.memory) {
      return refuse(request.memory_bytes() > allowed,
                    absl::StrCat("memory of ", BytesText(request.memory_bytes()), " was asked; on device ",
                                 device, " ", user, " has ", BytesText(used.memory), " and may have ",
                                 BytesText(allowed), " in all", kAdvice));
    }
    return absl::OkStatus();
  };
  // A request that names no devices is for all: for those that the user has parts of, and at least one more.
  std::map<uint32_t, OnDevice> asked;
  for (const uint32_t device : request.devices()) asked[device];
  if (asked.empty()) {
    asked = devices_;
    asked[0];
  }
  for (const auto& [device, unused] : asked) {
    const auto used = devices_.find(device);
    const absl::Status status = check(device, used != devices_.end() ? used->second : OnDevice());
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace xpud::agent
