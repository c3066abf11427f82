// Sums for each tenant: its sessions, their memory and their counters. Plain values.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "daemon/tenant/counters.h"
#include "daemon/tenant/tenant.h"

namespace xpud {

struct TenantTotal {
  uint64_t sessions_opened = 0;
  uint64_t sessions = 0;  // that are open
  uint64_t memory_bytes = 0;
  SessionCounters counters;

  TenantTotal& operator+=(const TenantTotal& other);
};

class TenantTotals {
 public:
  // Names come from gateways. Further tenants are counted together, as kOthers.
  static constexpr size_t kMax = 1024;
  static constexpr char kOthers[] = "others";
  using Map = std::map<std::string, TenantTotal>;  // by Tenant::Text

  TenantTotal& Of(const Tenant& tenant) { return Of(tenant.Text()); }
  TenantTotals& operator+=(const TenantTotals& other);
  const Map& map() const { return totals_; }

 private:
  TenantTotal& Of(const std::string& name);

  Map totals_;
};

}  // namespace xpud
