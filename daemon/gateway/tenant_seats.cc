#include "daemon/gateway/tenant_seats.h"

#include "absl/strings/str_cat.h"

namespace xpud::remote {

absl::StatusOr<Seat> TenantSeats::Take(const std::string& tenant) {
  MutexLock lock(mutex_);
  if (taken_ >= max_)
    return absl::ResourceExhaustedError(
        absl::StrCat("all ", max_, " places for remote clients are taken; try again later"));
  const auto found = by_tenant_.find(tenant);
  if (found != by_tenant_.end() && found->second >= max_per_tenant_)
    return absl::ResourceExhaustedError(
        absl::StrCat("all ", max_per_tenant_, " places of this tenant are taken; end a session"));
  ++by_tenant_[tenant];
  ++taken_;
  return Seat(this, [this, tenant](void*) { Leave(tenant); });
}

void TenantSeats::Leave(const std::string& tenant) {
  MutexLock lock(mutex_);
  --taken_;
  const auto found = by_tenant_.find(tenant);
  if (--found->second == 0) by_tenant_.erase(found);
}

}  // namespace xpud::remote
