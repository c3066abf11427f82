#include "daemon/tenant/totals.h"

namespace xpud {

TenantTotal& TenantTotal::operator+=(const TenantTotal& other) {
  sessions_opened += other.sessions_opened;
  sessions += other.sessions;
  memory_bytes += other.memory_bytes;
  counters += other.counters;
  return *this;
}

TenantTotal& TenantTotals::Of(const std::string& name) {
  if (const auto found = totals_.find(name); found != totals_.end()) return found->second;
  return totals_[totals_.size() < kMax ? name : kOthers];
}

TenantTotals& TenantTotals::operator+=(const TenantTotals& other) {
  for (const auto& [name, total] : other.totals_) Of(name) += total;
  return *this;
}

}  // namespace xpud
