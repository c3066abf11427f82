#include "daemon/gateway/tenant_places.h"

#include "absl/strings/str_cat.h"

namespace xpud::remote {

absl::StatusOr<Place> TenantPlaces::Take(const std::string& tenant) {
  MutexLock lock(mutex_);
  if (taken_ >= most_)
    return absl::ResourceExhaustedError(absl::StrCat("all ", most_, " places for remote clients are taken"));
  const auto found = of_tenant_.find(tenant);
  if (found != of_tenant_.end() && found->second >= most_of_tenant_)
    return absl::ResourceExhaustedError(
        absl::StrCat("all ", most_of_tenant_, " places of this tenant's are taken"));
  ++of_tenant_[tenant];
  ++taken_;
  return Place(this, [this, tenant](void*) { Leave(tenant); });
}

void TenantPlaces::Leave(const std::string& tenant) {
  MutexLock lock(mutex_);
  --taken_;
  const auto found = of_tenant_.find(tenant);
  if (--found->second == 0) of_tenant_.erase(found);
}

}  // namespace xpud::remote
