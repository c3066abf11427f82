// Gives sessions, or tenants, that keep an asynchronous device busy (they always have work in flight for a
// while) time of it by their weights, whatever their commands cost. What follows says session. A session that
// had kMaxAheadNs more than the least served of them waits. No session waits for one that does not keep the
// device busy, nor for one whose work does not end.
//
// The time is what DeviceTime charges: right on average, not for each command. So it is compared coarsely,
// and debts are forgiven: idle sessions begin anew beside the others, and no session owes more than
// kMaxDebtNs. REQUIRES: the lane's thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <list>

#include "daemon/scheduler/policy.h"
#include "daemon/stream/device_time.h"

namespace xpud::scheduler {

class DeviceShare {
 public:
  static constexpr uint64_t kMaxAheadNs = 5'000'000;
  static constexpr uint64_t kMaxDebtNs = 50'000'000;
  static constexpr uint64_t kBusyForNs = 10'000'000;  // so long without a break: it keeps the device busy
  static constexpr uint64_t kIdleForNs = 50'000'000;  // no work has ended for this long

  // One session's use of the device.
  struct Account {
    uint32_t weight = Policy::kNormalWeight;
    uint64_t used_ns = 0;     // as it is compared: for a weight of kNormalWeight
    uint64_t counted_ns = 0;  // of DeviceWork::used_ns
    stream::DeviceWork work = {};
  };

  Account& Add(uint32_t weight = Policy::kNormalWeight) {
    accounts_.push_back({.weight = weight, .used_ns = floor_ns_});
    return accounts_.back();
  }
  void Remove(const Account& account) {
    gone_.used_ns += account.counted_ns;
    gone_.ended_ns = std::max(gone_.ended_ns, account.work.ended_ns);
    accounts_.remove_if([&](const Account& each) { return &each == &account; });
  }

  // Takes the device's work for the session. Called for each account, then BeginRound, then HoldsBack.
  void Update(Account& account, const stream::DeviceWork& work);
  void BeginRound(uint64_t now_ns);
  // The work of all accounts, those that are gone included, as if they were one session.
  stream::DeviceWork Total() const;
  bool HoldsBack(const Account& account) const {
    return account.used_ns > kMaxAheadNs && account.used_ns - kMaxAheadNs > least_used_ns_;
  }

 private:
  std::list<Account> accounts_;
  stream::DeviceWork gone_;              // of removed accounts
  uint64_t least_used_ns_ = UINT64_MAX;  // of sessions that keep it busy; UINT64_MAX if none does
  uint64_t floor_ns_ = 0;                // the highest value so far of the least used of all with work
};

}  // namespace xpud::scheduler
