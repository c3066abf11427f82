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

#include "daemon/scheduler/account_list.h"
#include "daemon/stream/device_time.h"
#include "daemon/tenant/time_grant.h"

namespace xpud::scheduler {

class DeviceShare {
 public:
  static constexpr uint64_t kMaxAheadNs = 5'000'000;
  static constexpr uint64_t kMaxDebtNs = 50'000'000;
  static constexpr uint64_t kBusyForNs = 10'000'000;  // so long without a break: it keeps the device busy
  static constexpr uint64_t kIdleForNs = 50'000'000;  // no work has ended for this long
  // A session may pause for this part of the time in which it had work, and at most for so long.
  static constexpr uint64_t kPausePart = 8;
  static constexpr uint64_t kMaxPauseNs = 2'000'000;

  // One session's use of the device.
  struct Account : AccountList<Account>::Entry {
    uint32_t weight = 0;
    uint64_t used_ns = 0;      // as it is compared: for the usual weight
    uint64_t counted_ns = 0;   // of DeviceWork::used_ns
    bool waits = false;        // it has commands, and was held back
    uint64_t busy_since = 0;   // since when it was always occupied, or waited; 0: it is neither
    uint64_t wants_since = 0;  // the same, but for short pauses
    uint64_t pause_ns = 0;     // for how long it may pause
    stream::DeviceWork work = {};

    // As of the last round:
    uint64_t looked_ns = 0;
    uint64_t occupied_since = 0;
    bool waited = false;
  };

  explicit DeviceShare(uint32_t usual_weight = TimeGrant::kNormalWeight) : usual_weight_(usual_weight) {}

  // Its weight is the usual one, and may be changed at any time.
  Account& Add() {
    Account& added = accounts_.Add();
    added.weight = usual_weight_;
    added.used_ns = floor_ns_;
    return added;
  }
  void Remove(Account& account) { accounts_.Remove(account); }
  // The session, for which the device has no work, is left out of the rounds until it wakes.
  void Rests(Account& account) { accounts_.Rests(account); }
  void Wakes(Account& account) { accounts_.Wakes(account); }

  // Takes the device's work for the session. Called for each account, then BeginRound, then HoldsBack.
  // Returns the time that is new.
  uint64_t Update(Account& account, const stream::DeviceWork& work);
  void BeginRound(uint64_t now_ns);
  // The work of all sessions, those that have gone included, as if they were one.
  stream::DeviceWork Total() const;
  // Whether the device works for someone, and the work goes on.
  static bool Works(const stream::DeviceWork& total, uint64_t now_ns) {
    return total.occupied_since_ns != 0 &&
           now_ns - std::min(std::max(total.occupied_since_ns, total.ended_ns), now_ns) < kIdleForNs;
  }
  // Whether one keeps the device busy, and does not pause.
  bool keeps_busy() const { return keeps_busy_; }
  // Whether the session keeps the device busy, but for a short pause that it makes now.
  static bool Pauses(const Account& account) { return account.busy_since == 0 && account.wants_since != 0; }
  // How many had work lately.
  uint64_t active() const { return active_; }
  bool HoldsBack(const Account& account) const {
    return account.used_ns > kMaxAheadNs && account.used_ns - kMaxAheadNs > least_used_ns_;
  }

 private:
  const uint32_t usual_weight_;
  static void Look(Account& account, uint64_t now_ns);

  AccountList<Account> accounts_;
  uint64_t active_ = 0;
  bool keeps_busy_ = false;
  uint64_t total_ns_ = 0, ended_ns_ = 0;  // of all sessions, those that have gone included
  uint64_t least_used_ns_ = UINT64_MAX;   // of sessions that keep it busy; UINT64_MAX if none does
  uint64_t floor_ns_ = 0;                 // the highest value so far of the least used of all with work
};

}  // namespace xpud::scheduler
