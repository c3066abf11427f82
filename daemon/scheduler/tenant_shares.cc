#include "daemon/scheduler/tenant_shares.h"

#include <algorithm>
#include <utility>

namespace xpud::scheduler {

TenantShares::TenantShares(const Traits& traits, uint32_t least_share, uint64_t (*now_ns)())
    : traits_(traits),
      now_ns_(now_ns),
      classes_{Siblings(*this), Siblings(*this), Siblings(*this)},
      order_(least_share) {}

void TenantShares::Join(Branch& branch) {
  Siblings& siblings = SiblingsOf(branch);
  ++siblings.tenants;
  siblings.in_flight += branch.beside;
  branch.lane = &siblings.lane.Add();
  branch.device = &siblings.device.Add();
  branch.lane->weight = branch.device->weight = branch.grant.weight;
  branch.device->work = branch.device_sessions.Total();
  branch.device->counted_ns = branch.device->work.used_ns;
  if (branch.awake != 0) {
    ++siblings.awake;
  } else {
    siblings.lane.Rests(*branch.lane);
    siblings.device.Rests(*branch.device);
  }
}

void TenantShares::Leave(Branch& branch) {
  Siblings& siblings = SiblingsOf(branch);
  --siblings.tenants;
  siblings.awake -= branch.awake != 0;
  siblings.in_flight -= branch.beside;
  siblings.lane.Remove(*branch.lane);
  siblings.device.Remove(*branch.device);
}

void TenantShares::SetGrant(Branch& branch, const TimeGrant& grant) {
  const bool moves = grant.priority != branch.grant.priority;
  if (moves) {
    if (std::exchange(branch.counted, false)) order_.Wants(branch.grant.priority, false);
    Leave(branch);
  }
  branch.grant = grant;
  branch.least.Set(grant.least, Guarantee::kMaxDebtNs);
  branch.most.Set(grant.most);
  if (moves) Join(branch);
  branch.lane->weight = branch.device->weight = grant.weight;
  CountWants(branch);
}

Policy::Account& TenantShares::Add(const Tenant& tenant, const TimeGrant& grant) {
  ForgetDebtors();
  const auto [found, added] = tenants_.try_emplace(tenant, *this);
  Branch& branch = found->second;
  if (added) {
    branch.grant.priority = grant.priority;
    Join(branch);
  }
  SetGrant(branch, grant);
  ++branch.sessions;
  Account& account = accounts_.emplace_back(tenant, branch);
  account.at = std::prev(accounts_.end());
  Woke(branch);
  return account;
}

void TenantShares::Change(const Tenant& tenant, const TimeGrant& grant) {
  if (const auto found = tenants_.find(tenant); found != tenants_.end()) SetGrant(found->second, grant);
}

void TenantShares::SetWeight(Policy::Account& account, uint32_t weight) {
  Of(account).lane.weight = Of(account).device.weight = weight;
}

void TenantShares::Remove(Policy::Account& account) {
  Account& removed = Of(account);
  Branch& branch = removed.branch;
  WasIdle(account);
  Charge(branch, removed.work.in_flight_ns);  // nobody will say how long it took
  removed.awaits_first = false;
  Update(account, {.used_ns = removed.device.counted_ns});
  if (branch.holder == &removed) EndHeld(branch, now_ns_());
  if (!removed.rests) Rested(branch);
  branch.lane_sessions.Remove(removed.lane);
  branch.device_sessions.Remove(removed.device);
  const auto tenant = tenants_.find(removed.tenant);
  accounts_.erase(removed.at);
  if (--branch.sessions != 0) return;
  if (branch.most.owes()) {
    debtors_.push_back(tenant->first);
    ForgetDebtors();
  } else {
    Erase(tenant);
  }
}

void TenantShares::Erase(std::map<Tenant, Branch>::iterator tenant) {
  Leave(tenant->second);
  tenants_.erase(tenant);
}

void TenantShares::ForgetDebtors() {
  const uint64_t now = now_ns_();
  for (; !debtors_.empty(); debtors_.pop_front()) {
    const auto debtor = tenants_.find(debtors_.front());
    if (debtor == tenants_.end() || debtor->second.sessions != 0) continue;
    debtor->second.most.Accrue(now);
    if (debtor->second.most.owes() && debtors_.size() <= kMaxDebtors) return;
    Erase(debtor);
  }
}

void TenantShares::SetWants(Account& account, bool wants) {
  if (account.wants == wants) return;
  account.wants = account.device.waits = wants;
  account.branch.wanting += wants ? 1 : -1;
  CountWants(account.branch);
}

void TenantShares::CountWants(Branch& branch) {
  const bool counts = branch.wanting != 0 && !branch.must_wait;
  branch.device->waits = counts;
  if (std::exchange(branch.counted, counts) != counts) order_.Wants(branch.grant.priority, counts);
}

void TenantShares::Charge(Branch& branch, uint64_t ns) {
  branch.least.Use(ns);
  branch.most.Use(ns);
  order_.Use(branch.grant.priority, ns);
  SiblingsOf(branch).charged_ns += ns;
}

bool TenantShares::HasLower(PriorityClass of) const {
  for (size_t i = ClassOrder::Index(of) + 1; i < classes_.size(); ++i)
    if (classes_[i].tenants != 0) return true;
  return false;
}

bool TenantShares::HasHigher(PriorityClass of) const {
  for (size_t i = 0; i < ClassOrder::Index(of); ++i)
    if (classes_[i].tenants != 0) return true;
  return false;
}

bool TenantShares::HasHigherAwake(PriorityClass of) const {
  for (size_t i = 0; i < ClassOrder::Index(of); ++i)
    if (classes_[i].awake != 0) return true;
  return false;
}

uint64_t TenantShares::LowerChargedNs(PriorityClass of) const {
  uint64_t total = 0;
  for (size_t i = ClassOrder::Index(of) + 1; i < classes_.size(); ++i) total += classes_[i].charged_ns;
  return total;
}

// Its first work in flight waited while the device worked for lower classes.
void TenantShares::CountLower(Account& account, const stream::DeviceWork& work) {
  const PriorityClass of = account.branch.grant.priority;
  if (account.work.occupied_since_ns == 0 && work.occupied_since_ns != 0 && HasLower(of)) {
    account.awaits_first = true;
    account.lower_ns = LowerChargedNs(of);
  }
  if (!account.awaits_first || work.ended_ns == account.work.ended_ns) return;
  account.awaits_first = false;
  const uint64_t since = account.work.occupied_since_ns;
  const uint64_t took = work.ended_ns - std::min(since == 0 ? work.ended_ns : since, work.ended_ns);
  account.held.for_lower.Add(std::min(LowerChargedNs(of) - account.lower_ns, took));
}

void TenantShares::Update(Policy::Account& account, const stream::DeviceWork& work) {
  if (traits_.synchronous) return;
  Account& of = Of(account);
  Branch& branch = of.branch;
  if (const uint64_t more = branch.device_sessions.Update(of.device, work); more != 0) Charge(branch, more);
  Siblings& siblings = SiblingsOf(branch);
  branch.in_flight_ns += work.in_flight_ns - of.work.in_flight_ns;  // or less: sums wrap
  branch.beside -= InFlight::Of(of.work);
  branch.beside += InFlight::Of(work);
  siblings.in_flight -= InFlight::Of(of.work);
  siblings.in_flight += InFlight::Of(work);
  CountLower(of, work);
  of.work = work;
}

void TenantShares::Look(Branch& branch) {
  branch.lane_sessions.BeginRound();
  bool works = false;
  if (!traits_.synchronous) {
    branch.device_sessions.BeginRound(round_ns_);
    const stream::DeviceWork total = branch.device_sessions.Total();
    works = DeviceShare::Works(total, round_ns_);
    SiblingsOf(branch).device.Update(*branch.device, total);
  }
  if (branch.most.is_set()) branch.most.Accrue(round_ns_);
  branch.must_wait =
      branch.grant.paused || (branch.most.is_set() && !branch.most.Allows(branch.in_flight_ns));
  CountWants(branch);
  branch.goes_first = false;
  if (!branch.least.is_set()) return;
  const bool has_work = branch.counted || works || DeviceShare::Pauses(*branch.device);
  branch.least.Accrue(round_ns_, has_work);
  branch.goes_first = branch.least.due();
  someone_first_ |= branch.goes_first && has_work;
}

void TenantShares::BeginRound(uint64_t now_ns) {
  round_ns_ = now_ns;
  someone_first_ = below_ran_ = false;
  for (Branch* const branch : branches_) Look(*branch);
  for (size_t i = 0; i < classes_.size(); ++i) {
    Siblings& siblings = classes_[i];
    if (siblings.tenants == 0) continue;
    siblings.lane.BeginRound();
    if (traits_.synchronous) continue;
    siblings.device.BeginRound(now_ns);
    order_.SetOnDevice(static_cast<PriorityClass>(i), DeviceShare::Works(siblings.device.Total(), now_ns),
                       siblings.device.keeps_busy());
  }
  order_.BeginRound(now_ns);
}

void TenantShares::Release(Account& account) {
  account.branch.lane_sessions.MustWait(account.lane);
  if (!account.branch.lane_sessions.has_work())
    SiblingsOf(account.branch).lane.MustWait(*account.branch.lane);
}

std::optional<stream::InFlightWindow> TenantShares::WindowOf(const Account& account) {
  const Branch& branch = account.branch;
  const PriorityClass of = branch.grant.priority;
  stream::InFlightWindow window;
  uint64_t others = 0;  // what counts beside the session's own
  if (order_.HigherIsActive(of, round_ns_) && !branch.goes_first && !account.work.apart) {
    bool others_long = false;
    for (size_t i = 0; i < classes_.size(); ++i) {
      if (!order_.HigherIsActive(static_cast<PriorityClass>(i), round_ns_)) continue;
      others += classes_[i].in_flight.ns;
      others_long |=
          classes_[i].in_flight.commands > (i == ClassOrder::Index(of) ? account.work.long_in_flight : 0);
    }
    if (others_long) return std::nullopt;
    others -= account.work.in_flight_ns;
    window = {.ns = kBelowNs, .one_long = true};
  } else if (const uint64_t sessions = branch.device_sessions.active();
             sessions > 1 || SiblingsOf(branch).device.active() > 1) {
    window.ns = kAmongEqualsNs / std::max<uint64_t>(sessions, 1);
  } else if (HasHigher(of) && !account.work.apart) {  // may be back any moment, and a session has many queues
    window.ns = kBehindNs;
  }
  if (branch.most.is_set()) {
    others = std::max(others, branch.in_flight_ns - account.work.in_flight_ns);
    window.ns = std::min(window.ns, branch.most.RoomNs());
  }
  if (window.ns == UINT64_MAX) return window;
  if (others >= window.ns) return std::nullopt;
  window.ns -= others;
  return window;
}

FairShare::Answer TenantShares::DecideOnLane(Account& account) {
  const Branch& branch = account.branch;
  if (!branch.goes_first) {
    for (size_t i = 0; i < ClassOrder::Index(branch.grant.priority); ++i) {
      if (classes_[i].tenants != 0 && classes_[i].lane.IsAwaited(branch.lane->typical_ns))
        return FairShare::Answer::kAwaitAnother;
    }
    const FairShare::Answer answer = SiblingsOf(branch).lane.Decide(*branch.lane);
    account.tenant_ahead = answer == FairShare::Answer::kNotYet;
    if (answer != FairShare::Answer::kRun) return answer;
  }
  return account.branch.lane_sessions.Decide(account.lane);
}

Policy::Decision TenantShares::Decide(Policy::Account& account) {
  Account& asking = Of(account);
  Branch& branch = asking.branch;
  asking.tenant_ahead = false;
  if (branch.grant.paused || (branch.most.is_set() && !branch.most.Allows(branch.in_flight_ns))) {
    Release(asking);
    return Refuse(asking, Answer::kWait, branch.grant.paused ? HeldCause::kPaused : HeldCause::kCap);
  }
  // All of its class that have work are held back alike, so they still wait for each other.
  if (!branch.goes_first && (someone_first_ || !order_.MayRun(branch.grant.priority)))
    return Refuse(asking, Answer::kHoldBack, HeldCause::kClass);
  // In a round of many, commands of higher classes may have arrived since.
  if (below_ran_ && HasHigherAwake(branch.grant.priority))
    return Refuse(asking, Answer::kHoldBack, HeldCause::kClass);
  Decision decision = {.slice_ns = traits_.slice_ns};
  if (!traits_.synchronous) {
    const bool ahead = (!branch.goes_first && SiblingsOf(branch).device.HoldsBack(*branch.device)) ||
                       branch.device_sessions.HoldsBack(asking.device);
    const auto window = ahead ? std::nullopt : WindowOf(asking);
    if (!window) {
      Release(asking);
      const bool below = !ahead && order_.HigherIsActive(branch.grant.priority, round_ns_);
      return Refuse(asking, Answer::kHoldBack, below ? std::optional(HeldCause::kClass) : std::nullopt);
    }
    decision.window = *window;
    if (window->one_long) decision.slice_ns /= kSlicesBelow;
  }
  switch (DecideOnLane(asking)) {
    case FairShare::Answer::kNotYet:
      return Refuse(asking, Answer::kHoldBack, std::nullopt);
    case FairShare::Answer::kAwaitAnother:
      return {.answer = Answer::kAwaitAnother};
    case FairShare::Answer::kRun:
      break;
  }
  if (branch.held) EndHeld(branch, round_ns_);
  return decision;
}

void TenantShares::Ran(Policy::Account& account, const stream::DeviceWork& work, uint64_t began_ns,
                       uint64_t ended_ns, uint64_t helped_ns) {
  Account& ran = Of(account);
  Branch& branch = ran.branch;
  const PriorityClass of = branch.grant.priority;
  if (traits_.synchronous) {
    if (!ran.lane.has_work && HasLower(of))
      ran.held.for_lower.Add(lower_.Within(of, began_ns - std::min(work.waited_ns, began_ns), began_ns));
    lower_.Ran(of, began_ns, ended_ns);
    Charge(branch, ended_ns - began_ns + helped_ns);
  } else {
    Update(account, work);
  }
  below_ran_ |= HasHigherAwake(of);
  SetWants(ran, true);
  SiblingsOf(branch).lane.Ran(*branch.lane, began_ns, ended_ns, helped_ns);
  branch.lane_sessions.Ran(ran.lane, began_ns, ended_ns, helped_ns);
}

void TenantShares::HeldBack(Policy::Account& account) {
  Account& held = Of(account);
  Branch& branch = held.branch;
  SetWants(held, true);
  if (branch.held) EndHeld(branch, round_ns_);
  // So that it has its part when the tenant, or the class, has one.
  if (held.tenant_ahead || (traits_.synchronous && held.answer == HeldCause::kClass)) {
    branch.lane_sessions.HasWork(held.lane, round_ns_);
    SiblingsOf(branch).lane.HasWork(*branch.lane, round_ns_);
  }
  if (!held.answer) return;
  branch.held = held.answer;
  branch.held_since_ns = round_ns_;
  branch.holder = &held;
}

void TenantShares::EndHeld(Branch& branch, uint64_t now_ns) {
  branch.holder->held.ns[static_cast<size_t>(*branch.held)] +=
      now_ns - std::min(branch.held_since_ns, now_ns);
  branch.held.reset();
  branch.holder = nullptr;
}

HeldTimes TenantShares::Held(const Policy::Account& account) const {
  const Account& of = Of(account);
  HeldTimes held = of.held;
  if (of.branch.holder == &of) {
    const uint64_t now = now_ns_();
    held.ns[static_cast<size_t>(*of.branch.held)] += now - std::min(of.branch.held_since_ns, now);
  }
  return held;
}

uint64_t TenantShares::DueNs() const {
  uint64_t due = UINT64_MAX;
  for (const Branch* const branch : branches_) {
    if (branch->wanting != 0 && !branch->grant.paused && branch->most.is_set())
      due = std::min(due, branch->most.DueNs());
  }
  return due;
}

void TenantShares::Woke(Branch& branch) {
  if (branch.awake++ != 0) return;
  ++SiblingsOf(branch).awake;
  branch.at = branches_.insert(branches_.end(), &branch);
  SiblingsOf(branch).lane.Wakes(*branch.lane);
  SiblingsOf(branch).device.Wakes(*branch.device);
}

void TenantShares::Rested(Branch& branch) {
  if (--branch.awake != 0) return;
  --SiblingsOf(branch).awake;
  branches_.erase(branch.at);
  SiblingsOf(branch).lane.Rests(*branch.lane);
  SiblingsOf(branch).device.Rests(*branch.device);
}

void TenantShares::Rests(Policy::Account& account) {
  Account& idle = Of(account);
  WasIdle(account);
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

void TenantShares::LeavesLane(Account& account) {
  Branch& branch = account.branch;
  branch.lane_sessions.WasIdle(account.lane);
  if (!branch.lane_sessions.has_work()) SiblingsOf(branch).lane.WasIdle(*branch.lane);
}

void TenantShares::IsFull(Policy::Account& account) {
  LeavesLane(Of(account));
  SetWants(Of(account), true);
}

void TenantShares::WasIdle(Policy::Account& account) {
  Account& idle = Of(account);
  Branch& branch = idle.branch;
  LeavesLane(idle);
  SetWants(idle, false);
  if (branch.wanting == 0 && branch.held) EndHeld(branch, round_ns_);
}

}  // namespace xpud::scheduler
