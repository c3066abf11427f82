// The tree of a lane: classes, their tenants, and the tenants' sessions. In this order:
//
// clang-format off
//   paused, cap   a tenant that is paused, or has had its most (Cap), waits, whoever else runs
//   guarantee     a tenant with less than its least (Guarantee) goes first, whatever its class
//   class         then the highest class with work, but for the least part of each (ClassOrder)
//   tenant        within a class, tenants with work get parts by their weights
//   session       and within a tenant, its sessions by theirs: equal, but for those that made themselves nicer
// clang-format on
//
// Parts are of a lane's time (FairShare), and on an asynchronous device also of the device's (DeviceShare).
// What one leaves idle goes to the others. On an asynchronous device, commands that were submitted cannot be
// taken back, so sessions that contend have little of them in flight. REQUIRES: the lane's thread.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>

#include "daemon/scheduler/cap.h"
#include "daemon/scheduler/class_order.h"
#include "daemon/scheduler/device_share.h"
#include "daemon/scheduler/fair_share.h"
#include "daemon/scheduler/guarantee.h"
#include "daemon/scheduler/lower_work.h"
#include "daemon/scheduler/policy.h"
#include "daemon/tenant/nice.h"
#include "proto/base/clock.h"

namespace xpud::scheduler {

class TenantShares final : public Policy {
 public:
  static constexpr uint32_t kMinShare = 200;  // of each class with work, in hundredths of a per cent
  // What may be in flight on an asynchronous device: of all lower classes together while a higher one is
  // active, and of each tenant while several of a class contend.
  static constexpr uint64_t kBelowNs = 1'000'000, kAmongEqualsNs = 2'000'000;
  // Of a session while all higher classes that there are have been idle for a while.
  static constexpr uint64_t kBehindNs = 20'000'000;
  // A slice of a lower class is shorter by this then.
  static constexpr uint64_t kSlicesBelow = 4;
  // Of a tenant that left owing time, the debt is kept, so that it gets no more by coming back.
  static constexpr size_t kMaxDebtors = 1024;

  static std::unique_ptr<Policy> Create(const Traits& traits) { return Maker(kMinShare)(traits); }
  // Makes policies with another `least_share`; 0: a class with work may starve those below it.
  static std::function<std::unique_ptr<Policy>(const Traits&)> Maker(uint32_t least_share) {
    return [least_share](const Traits& traits) {
      return std::make_unique<TenantShares>(traits, least_share, NowNs);
    };
  }
  // `now_ns`: a monotonic clock.
  TenantShares(const Traits& traits, uint32_t least_share, uint64_t (*now_ns)());

  Policy::Account& Add(const Tenant& tenant, const TimeGrant& grant) override;
  void Remove(Policy::Account& account) override;
  void Change(const Tenant& tenant, const TimeGrant& grant) override;
  void SetWeight(Policy::Account& account, uint32_t weight) override;
  void Update(Policy::Account& account, const stream::DeviceWork& work) override;
  void BeginRound(uint64_t now_ns) override;
  Decision Decide(Policy::Account& account) override;
  void Ran(Policy::Account& account, const stream::DeviceWork& work, uint64_t began_ns, uint64_t ended_ns,
           uint64_t helped_ns) override;
  void HeldBack(Policy::Account& account) override;
  void IsFull(Policy::Account& account) override;
  void WasIdle(Policy::Account& account) override;
  void Rests(Policy::Account& account) override;
  void Wakes(Policy::Account& account) override;
  uint64_t DueNs() const override;
  HeldTimes Held(const Policy::Account& account) const override;

 private:
  // Work of the device for which higher classes wait: what is in their executor.
  struct InFlight {
    uint64_t ns = 0, commands = 0;  // the long ones

    static InFlight Of(const stream::DeviceWork& work) {
      return work.apart ? InFlight() : InFlight{work.in_flight_ns, work.long_in_flight};
    }
    void operator+=(const InFlight& more) { ns += more.ns, commands += more.commands; }
    void operator-=(const InFlight& less) { ns -= less.ns, commands -= less.commands; }
  };
  // The tenants of one class, among each other.
  struct Siblings {
    explicit Siblings(const TenantShares& shares) : lane(shares.traits_.slice_ns, shares.now_ns_) {}

    FairShare lane;
    DeviceShare device;
    int tenants = 0, awake = 0;
    uint64_t charged_ns = 0;  // of the device's time
    InFlight in_flight;       // of all its sessions
  };
  struct Account;
  // A tenant that has sessions, or owes time.
  struct Branch {
    explicit Branch(const TenantShares& shares)
        : lane_sessions(shares.traits_.slice_ns, shares.now_ns_, kSessionWeight),
          device_sessions(kSessionWeight) {}

    TimeGrant grant;
    FairShare::Account* lane = nullptr;  // among its siblings
    DeviceShare::Account* device = nullptr;
    FairShare lane_sessions;
    DeviceShare device_sessions;
    Guarantee least;
    Cap most;
    int sessions = 0, awake = 0;
    int wanting = 0;            // sessions that have commands
    bool counted = false;       // in ClassOrder, as one that wants to run
    bool must_wait = false;     // paused, or had its most
    bool goes_first = false;    // it has less than its least
    uint64_t in_flight_ns = 0;  // of all its sessions
    InFlight beside;
    // While its sessions are held back: why, since when that is not counted, and the session that will count.
    std::optional<HeldCause> held;
    uint64_t held_since_ns = 0;
    Account* holder = nullptr;
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
    stream::DeviceWork work = {};
    bool rests = false;
    bool wants = false;               // it has commands
    std::optional<HeldCause> answer;  // why it was told to wait
    bool tenant_ahead = false;        // it must wait because its tenant has had more than others
    HeldTimes held;
    uint64_t lower_ns = 0;      // what the device had spent for lower classes when its work in flight began
    bool awaits_first = false;  // none of that has ended
    std::list<Account>::iterator at;
  };

  static Account& Of(Policy::Account& account) { return static_cast<Account&>(account); }
  static const Account& Of(const Policy::Account& account) { return static_cast<const Account&>(account); }
  Siblings& SiblingsOf(const Branch& branch) { return classes_[ClassOrder::Index(branch.grant.priority)]; }

  // The tenant joins those of its class, or leaves them.
  void Join(Branch& branch);
  void Leave(Branch& branch);
  void SetGrant(Branch& branch, const TimeGrant& grant);
  // Forgets tenants without sessions that owe nothing any more.
  void ForgetDebtors();
  void Erase(std::map<Tenant, Branch>::iterator tenant);
  // A session of the tenant is awake, or no longer.
  void Woke(Branch& branch);
  void Rested(Branch& branch);
  void SetWants(Account& account, bool wants);
  void CountWants(Branch& branch);
  // The tenant used the device.
  void Charge(Branch& branch, uint64_t ns);
  // The branch's part of BeginRound.
  void Look(Branch& branch);
  // Nobody waits for the session on the lane.
  void Release(Account& account);
  // The session does not use the lane.
  void LeavesLane(Account& account);
  static Decision Refuse(Account& account, Answer answer, std::optional<HeldCause> cause) {
    account.answer = cause;
    return {.answer = answer};
  }
  // The tenant's and the session's parts of the lane's time.
  FairShare::Answer DecideOnLane(Account& account);
  // What the session may have in flight; none: nothing now.
  std::optional<stream::InFlightWindow> WindowOf(const Account& account);
  bool HasLower(PriorityClass of) const;
  bool HasHigher(PriorityClass of) const;
  bool HasHigherAwake(PriorityClass of) const;
  uint64_t LowerChargedNs(PriorityClass of) const;
  void CountLower(Account& account, const stream::DeviceWork& work);
  // Counts how long the tenant was held back until now, and that it is no longer.
  void EndHeld(Branch& branch, uint64_t now_ns);

  const Traits traits_;
  uint64_t (*const now_ns_)();
  std::array<Siblings, ClassOrder::kClasses> classes_;
  ClassOrder order_;
  LowerWork lower_;
  std::map<Tenant, Branch> tenants_;
  std::list<Branch*> branches_;  // of tenants with sessions that are awake
  std::list<Account> accounts_;
  std::deque<Tenant> debtors_;  // those that left owing time, in that order; some have come back
  uint64_t round_ns_ = 0;       // when the round began
  bool someone_first_ = false;  // a tenant with work goes first
  bool below_ran_ = false;      // a session in this round, and tenants of higher classes are awake
};

}  // namespace xpud::scheduler
