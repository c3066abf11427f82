// Sums for each tenant: its sessions, their memory and their counters. A value.
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
  uint64_t shared_bytes = 0;                          // of these
  std::map<uint32_t, SessionCounters> counters = {};  // by device
  uint64_t left = 0;  // when its last session was closed, by the count of TenantTotals

  SessionCounters AllCounters() const;
  TenantTotal& operator+=(const TenantTotal& other);
};

class TenantTotals {
 public:
  // Names come from gateways, and tenants come and go. Those that have no session make room for others; what
  // they did is counted together, as kOthers. There are at most as many sessions as places.
  static constexpr size_t kMax = 1024;
  static constexpr char kOthers[] = "others";
  using Map = std::map<std::string, TenantTotal>;  // by Tenant::Text

  void Opened(const Tenant& tenant);
  void Closed(const Tenant& tenant);
  TenantTotal& Of(const Tenant& tenant) { return Of(tenant.Text()); }
  // The same without counters.
  TenantTotals Sessions() const;
  // The counters of a device alone.
  TenantTotals WorkOn(uint32_t device) const;
  TenantTotals& operator+=(const TenantTotals& other);
  const Map& map() const { return totals_; }

 private:
  TenantTotal& Of(const std::string& name);

  // Adds the tenant without sessions that left first to kOthers. Returns whether there was one.
  bool MakeRoom();

  Map totals_;
  uint64_t closed_ = 0;  // sessions so far
};

}  // namespace xpud
