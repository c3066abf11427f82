#include "daemon/handles/table_space.h"

#include "absl/strings/str_cat.h"

namespace xpud::handles {

absl::Status TableSpace::Take(const Tenant& tenant, uint64_t entries) {
  MutexLock lock(mutex_);
  const auto found = of_tenant_.find(tenant);
  const uint64_t has = found == of_tenant_.end() ? 0 : found->second;
  if (has + entries > kMaxPerTenant) {
    return absl::ResourceExhaustedError(absl::StrCat("the sessions of ", tenant.Text(), " have room for ",
                                                     has, " buffers; ", kMaxPerTenant, " are allowed"));
  }
  of_tenant_[tenant] = has + entries;
  return absl::OkStatus();
}

void TableSpace::Return(const Tenant& tenant, uint64_t entries) {
  if (entries == 0) return;
  MutexLock lock(mutex_);
  const auto found = of_tenant_.find(tenant);
  found->second -= entries;
  if (found->second == 0) of_tenant_.erase(found);
}

}  // namespace xpud::handles
