// What was counted of the memory of tenants that have no sessions now. Those that left first are counted
// together once there are too many: see TenantTotals. REQUIRES: the lane's thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "daemon/memory/usage.h"
#include "daemon/tenant/tenant.h"
#include "daemon/tenant/totals.h"

namespace xpud::memory {

class EndedTenants {
 public:
  static constexpr size_t kMax = TenantTotals::kMax;

  // Its last session has ended.
  void Add(const Tenant& tenant, const MoveCounters& counters);
  // It has a session again. Returns what it did before.
  MoveCounters Take(const Tenant& tenant);
  // By Tenant::Text, and TenantTotals::kOthers.
  std::map<std::string, MoveCounters> Counters() const;

 private:
  struct Ended {
    uint64_t left = 0;  // by the count of those that left
    MoveCounters counters;
  };
  std::map<Tenant, Ended> tenants_;
  MoveCounters others_;
  uint64_t left_ = 0;
};

}  // namespace xpud::memory
