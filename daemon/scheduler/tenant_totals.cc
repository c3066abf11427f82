#include "daemon/scheduler/tenant_totals.h"

namespace xpud::scheduler {

TenantTotals::Total& TenantTotals::Of(const Tenant& tenant, Map& totals) {
  const std::string name = tenant.Text();
  if (const auto found = totals.find(name); found != totals.end()) return found->second;
  return totals[totals.size() < kMax ? name : kOthers];
}

void TenantTotals::Add(const session::Session& session, Map& totals) {
  Of(session.peer().tenant, totals).counters += session.counters();
}

}  // namespace xpud::scheduler
