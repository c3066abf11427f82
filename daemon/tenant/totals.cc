#include "daemon/tenant/totals.h"

namespace xpud {

SessionCounters TenantTotal::AllCounters() const {
  SessionCounters all;
  for (const auto& [device, more] : counters) all += more;
  return all;
}

TenantTotal& TenantTotal::operator+=(const TenantTotal& other) {
  sessions_opened += other.sessions_opened;
  sessions += other.sessions;
  memory_bytes += other.memory_bytes;
  shared_bytes += other.shared_bytes;
  for (const auto& [device, more] : other.counters) counters[device] += more;
  return *this;
}

void TenantTotals::Opened(const Tenant& tenant) {
  TenantTotal& total = Of(tenant);
  ++total.sessions_opened;
  ++total.sessions;
}

void TenantTotals::Closed(const Tenant& tenant) {
  TenantTotal& total = Of(tenant);
  --total.sessions;
  total.left = ++closed_;
}

TenantTotal& TenantTotals::Of(const std::string& name) {
  if (const auto found = totals_.find(name); found != totals_.end()) return found->second;
  return totals_[totals_.size() < kMax || MakeRoom() ? name : kOthers];
}

TenantTotals TenantTotals::Sessions() const {
  TenantTotals sessions;
  for (const auto& [name, total] : totals_)
    sessions.totals_[name] = {.sessions_opened = total.sessions_opened, .sessions = total.sessions};
  return sessions;
}

TenantTotals TenantTotals::WorkOn(uint32_t device) const {
  TenantTotals work;
  for (const auto& [name, total] : totals_) {
    if (const auto found = total.counters.find(device); found != total.counters.end())
      work.totals_[name].counters.insert(*found);
  }
  return work;
}

bool TenantTotals::MakeRoom() {
  auto first = totals_.end();
  for (auto total = totals_.begin(); total != totals_.end(); ++total) {
    if (total->second.sessions == 0 && total->first != kOthers &&
        (first == totals_.end() || total->second.left < first->second.left))
      first = total;
  }
  if (first == totals_.end()) return false;
  const TenantTotal gone = first->second;
  totals_.erase(first);
  totals_[kOthers] += gone;
  return true;
}

TenantTotals& TenantTotals::operator+=(const TenantTotals& other) {
  for (const auto& [name, total] : other.totals_) Of(name) += total;
  return *this;
}

}  // namespace xpud
