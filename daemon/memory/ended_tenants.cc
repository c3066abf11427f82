#include "daemon/memory/ended_tenants.h"

#include <algorithm>

namespace xpud::memory {

void EndedTenants::Add(const Tenant& tenant, const MoveCounters& counters) {
  if (counters.is_zero()) return;
  if (tenants_.size() == kMax) {
    const auto first =
        std::ranges::min_element(tenants_, {}, [](const auto& each) { return each.second.left; });
    others_ += first->second.counters;
    tenants_.erase(first);
  }
  tenants_[tenant] = {++left_, counters};
}

MoveCounters EndedTenants::Take(const Tenant& tenant) {
  const auto found = tenants_.find(tenant);
  if (found == tenants_.end()) return {};
  const MoveCounters counters = found->second.counters;
  tenants_.erase(found);
  return counters;
}

std::map<std::string, MoveCounters> EndedTenants::Counters() const {
  std::map<std::string, MoveCounters> all;
  for (const auto& [tenant, ended] : tenants_) all[tenant.Text()] = ended.counters;
  if (!others_.is_zero()) all[TenantTotals::kOthers] = others_;
  return all;
}

}  // namespace xpud::memory
