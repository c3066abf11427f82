// Tenants that have work get parts of a lane's time (FairShare), and on an asynchronous device also of the
// device's (DeviceShare), by their weights. The sessions of a tenant share its part equally. What a tenant
// leaves idle goes to the others. Classes make no difference.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <memory>

#include "daemon/scheduler/device_share.h"
#include "daemon/scheduler/fair_share.h"
#include "daemon/scheduler/policy.h"
#include "proto/base/clock.h"

namespace xpud::scheduler {

class TenantShares final : public Policy {
 public:
  static std::unique_ptr<Policy> Create(uint64_t slice_ns) {
    return std::make_unique<TenantShares>(slice_ns, NowNs);
  }
  // `now_ns`: a monotonic clock.
  TenantShares(uint64_t slice_ns, uint64_t (*now_ns)())
      : slice_ns_(slice_ns), now_ns_(now_ns), lane_(slice_ns, now_ns) {}

  Policy::Account& Add(const Tenant& tenant, const TimeGrant& grant) override;
  void Change(const Tenant& tenant, const TimeGrant& grant) override;
  void Remove(Policy::Account& account) override;
  void Update(Policy::Account& account, const stream::DeviceWork& work) override;
  void BeginRound(uint64_t now_ns) override;
  Answer Decide(Policy::Account& account) override;
  void Ran(Policy::Account& account, uint64_t began_ns, uint64_t ended_ns) override;
  void WasIdle(Policy::Account& account) override;
  void Rests(Policy::Account& account) override;
  void Wakes(Policy::Account& account) override;

 private:
  // A tenant that has sessions: its accounts among the tenants, and its sessions' among each other.
  struct Branch {
    explicit Branch(TenantShares& shares)
        : lane(shares.lane_.Add()),
          device(shares.device_.Add()),
          lane_sessions(shares.slice_ns_, shares.now_ns_) {}

    TimeGrant grant;
    FairShare::Account& lane;
    DeviceShare::Account& device;
    FairShare lane_sessions;
    DeviceShare device_sessions;
    int sessions = 0, awake = 0;
    std::list<Branch*>::iterator at;  // in branches_, while any of its sessions is awake
  };
  struct Account final : Policy::Account {
    Account(const Tenant& of, Branch& branch_of)
        : tenant(of),
          branch(branch_of),
          lane(branch_of.lane_sessions.Add()),
          device(branch_of.device_sessions.Add()) {}

    const Tenant tenant;
    Branch& branch;
    FairShare::Account& lane;
    DeviceShare::Account& device;
    bool rests = false;
    std::list<Account>::iterator at;
  };
  static void SetGrant(Branch& branch, const TimeGrant& grant);
  // A session of the tenant is awake, or no longer.
  void Woke(Branch& branch);
  void Rested(Branch& branch);
  static Account& Of(Policy::Account& account) { return static_cast<Account&>(account); }

  const uint64_t slice_ns_;
  uint64_t (*const now_ns_)();
  FairShare lane_;
  DeviceShare device_;
  std::map<Tenant, Branch> tenants_;
  std::list<Branch*> branches_;  // of tenants with sessions that are awake
  std::list<Account> accounts_;
};

}  // namespace xpud::scheduler
