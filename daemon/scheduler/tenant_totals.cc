#include "daemon/scheduler/tenant_totals.h"

namespace xpud::scheduler {

TenantTotals::Total& TenantTotals::Of(const Tenant& tenant, Map& totals) {
  const std::string name = tenant.Text();
  if (const auto found = totals.find(name); found != totals.end()) return found->second;
  return totals[totals.size() < kMost ? name : kOthers];
}

void TenantTotals::Add(const session::Session& session, Map& totals) {
  session::SessionStats& sum = Of(session.peer().tenant, totals).stats;
  const session::SessionStats& stats = session.stats();
  sum.submitted += stats.submitted;
  sum.completed += stats.completed;
  sum.errors += stats.errors;
  sum.uploaded_bytes += stats.uploaded_bytes;
  sum.downloaded_bytes += stats.downloaded_bytes;
  sum.busy_ns += stats.busy_ns;
  sum.queue_wait_ns += stats.queue_wait_ns;
}

}  // namespace xpud::scheduler
