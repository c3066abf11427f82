#include "daemon/scheduler/tenant_shares.h"

namespace xpud::scheduler {

Policy::Account& TenantShares::Add(const Tenant& tenant, const TimeGrant& grant) {
  Branch& branch = tenants_.try_emplace(tenant, *this).first->second;
  SetGrant(branch, grant);
  ++branch.sessions;
  Account& added = accounts_.emplace_back(tenant, branch);
  added.at = std::prev(accounts_.end());
  Woke(branch);
  return added;
}

void TenantShares::Change(const Tenant& tenant, const TimeGrant& grant) {
  if (const auto found = tenants_.find(tenant); found != tenants_.end()) SetGrant(found->second, grant);
}

void TenantShares::SetGrant(Branch& branch, const TimeGrant& grant) {
  branch.grant = grant;
  branch.lane.weight = branch.device.weight = grant.weight;
}

void TenantShares::Remove(Policy::Account& account) {
  Account& removed = Of(account);
  WasIdle(account);
  if (!removed.rests) Rested(removed.branch);
  removed.branch.lane_sessions.Remove(removed.lane);
  removed.branch.device_sessions.Remove(removed.device);
  if (--removed.branch.sessions == 0) {
    lane_.Remove(removed.branch.lane);
    device_.Remove(removed.branch.device);
    tenants_.erase(removed.tenant);
  }
  accounts_.erase(removed.at);
}

void TenantShares::Update(Policy::Account& account, const stream::DeviceWork& work) {
  Of(account).branch.device_sessions.Update(Of(account).device, work);
}

void TenantShares::BeginRound(uint64_t now_ns) {
  for (Branch* const branch : branches_) {
    branch->lane_sessions.BeginRound();
    branch->device_sessions.BeginRound(now_ns);
    device_.Update(branch->device, branch->device_sessions.Total());
  }
  lane_.BeginRound();
  device_.BeginRound(now_ns);
}

Policy::Answer TenantShares::Decide(Policy::Account& account) {
  const Account& asking = Of(account);
  const Branch& branch = asking.branch;
  if (device_.HoldsBack(branch.device) || branch.device_sessions.HoldsBack(asking.device)) {
    WasIdle(account);
    return Answer::kHoldBack;
  }
  FairShare::Answer answer = lane_.Decide(branch.lane);
  if (answer == FairShare::Answer::kRun) answer = asking.branch.lane_sessions.Decide(asking.lane);
  switch (answer) {
    case FairShare::Answer::kNotYet:
      return Answer::kHoldBack;
    case FairShare::Answer::kAwaitAnother:
      return Answer::kAwaitAnother;
    case FairShare::Answer::kRun:
      break;
  }
  return Answer::kRun;
}

void TenantShares::Ran(Policy::Account& account, uint64_t began_ns, uint64_t ended_ns) {
  const Account& ran = Of(account);
  lane_.Ran(ran.branch.lane, began_ns, ended_ns);
  ran.branch.lane_sessions.Ran(ran.lane, began_ns, ended_ns);
}

void TenantShares::Woke(Branch& branch) {
  if (branch.awake++ != 0) return;
  branch.at = branches_.insert(branches_.end(), &branch);
  lane_.Wakes(branch.lane);
  device_.Wakes(branch.device);
}

void TenantShares::Rested(Branch& branch) {
  if (--branch.awake != 0) return;
  branches_.erase(branch.at);
  lane_.Rests(branch.lane);
  device_.Rests(branch.device);
}

void TenantShares::Rests(Policy::Account& account) {
  Account& idle = Of(account);
  idle.rests = true;
  idle.branch.lane_sessions.Rests(idle.lane);
  idle.branch.device_sessions.Rests(idle.device);
  Rested(idle.branch);
}

void TenantShares::Wakes(Policy::Account& account) {
  Account& woken = Of(account);
  woken.rests = false;
  woken.branch.lane_sessions.Wakes(woken.lane);
  woken.branch.device_sessions.Wakes(woken.device);
  Woke(woken.branch);
}

void TenantShares::WasIdle(Policy::Account& account) {
  const Account& idle = Of(account);
  idle.branch.lane_sessions.WasIdle(idle.lane);
  if (!idle.branch.lane_sessions.has_work()) lane_.WasIdle(idle.branch.lane);
}

}  // namespace xpud::scheduler
