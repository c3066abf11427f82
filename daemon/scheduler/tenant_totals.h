// What each tenant's sessions did since the daemon started, those that ended included. The engine thread
// only.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "daemon/session/session.h"
#include "daemon/tenant/counters.h"
#include "daemon/tenant/tenant.h"

namespace xpud::scheduler {

class TenantTotals {
 public:
  // Names come from gateways; beyond so many tenants, further ones are counted together.
  static constexpr size_t kMax = 1024;
  static constexpr char kOthers[] = "others";

  struct Total {
    uint64_t sessions_opened = 0;
    uint64_t sessions = 0;  // that are open
    uint64_t memory_bytes = 0;
    SessionCounters counters;
  };
  using Map = std::map<std::string, Total>;  // by Tenant::Text, or kOthers

  void Opened(const Tenant& tenant) { ++Of(tenant, totals_).sessions_opened; }
  // Counts what a session did that will do nothing more.
  void Retire(const session::Session& session) { Add(session, totals_); }
  const Map& retired() const { return totals_; }

  // Adds what a session did so far.
  static void Add(const session::Session& session, Map& totals);
  static Total& Of(const Tenant& tenant, Map& totals);

 private:
  Map totals_;
};

}  // namespace xpud::scheduler
