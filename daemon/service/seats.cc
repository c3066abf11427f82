#include "daemon/service/seats.h"

#include "absl/strings/str_cat.h"

namespace xpud::service {

absl::Status Seats::Take(const Tenant& tenant) {
  const auto found = by_tenant_.find(tenant);
  const size_t has = found == by_tenant_.end() ? 0 : found->second;
  if (has >= max_per_user_) {
    const std::string who =
        tenant.claim.empty() ? absl::StrCat("user ", tenant.uid) : absl::StrCat("the claim ", tenant.claim);
    return absl::ResourceExhaustedError(absl::StrCat(who, " has ", has, " clients connected; ", max_per_user_,
                                                     " are allowed (--user-clients)"));
  }
  if (taken_ >= kMax)
    return absl::ResourceExhaustedError(
        absl::StrCat(taken_, " clients are connected; ", kMax, " are allowed"));
  ++taken_;
  ++by_tenant_[tenant];
  return absl::OkStatus();
}

void Seats::Release(const Tenant& tenant) {
  --taken_;
  const auto found = by_tenant_.find(tenant);
  if (--found->second == 0) by_tenant_.erase(found);
}

}  // namespace xpud::service
