// Gives sessions, or tenants, with work time of a lane by their weights, whatever their commands cost: on a
// synchronous device that is the device's time, on an asynchronous one the time of submitting. What follows
// says session. One that is a slice ahead of the least served one waits. Idling saves up a little time, so
// that a session which pauses between its commands (a trainer beside servers of large batches) is served at
// once when it continues; it saves up at most the length of a long command.
//
// A long command is interrupted at most between its groups (on the CPU device). Before one begins, the device
// is kept free for a moment for a session that was served less and stopped just now, because its next command
// is probably about to arrive. That moment is charged to that session. REQUIRES: the lane's thread.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "daemon/scheduler/account_list.h"
#include "daemon/tenant/time_grant.h"

namespace xpud::scheduler {

class FairShare {
 public:
  static constexpr uint64_t kLongNs = 1'000'000;  // a slice before which another session is awaited
  static constexpr uint64_t kAwaitPart = 20;      // for a twentieth of the slice
  static constexpr uint64_t kMaxAwaitNs = 200'000;
  static constexpr uint64_t kMaxCreditNs = 20'000'000;  // time that idling saves up

  // One session's use of the device.
  struct Account : AccountList<Account>::Entry {
    uint32_t weight = 0;
    uint64_t used_ns = 0;     // as it is compared: for the usual weight
    uint64_t typical_ns = 0;  // length of its slices: the longest recent one, fading
    uint64_t ended_ns = 0;    // its last slice
    bool has_work = false;
    bool awaited = false;  // the device was kept free for it since
  };
  enum class Answer { kRun, kNotYet, kAwaitAnother };

  // `now_ns`: a monotonic clock.
  FairShare(uint64_t slice_ns, uint64_t (*now_ns)(), uint32_t usual_weight = TimeGrant::kNormalWeight)
      : slice_ns_(slice_ns), now_ns_(now_ns), usual_weight_(usual_weight) {}

  // Its weight is the usual one, and may be changed at any time.
  Account& Add() {
    Account& added = accounts_.Add();
    added.weight = usual_weight_;
    added.used_ns = floor_ns_;
    return added;
  }
  void Remove(Account& account);
  // The session is left out of the rounds until it wakes.
  void Rests(Account& account) {
    WasIdle(account);
    accounts_.Rests(account);
  }
  void Wakes(Account& account) { accounts_.Wakes(account); }

  // Called once for each round of turns, before its first Decide.
  void BeginRound();
  // Whether a session with work, or not known to have none, may run a slice now.
  Answer Decide(const Account& account);
  // The session has work, since `since_ns`, and all of this share must wait.
  void HasWork(Account& account, uint64_t since_ns);
  // The session ran a slice, at this time, and before it the device had worked for it for `helped_ns`.
  void Ran(Account& account, uint64_t start_ns, uint64_t end_ns, uint64_t helped_ns);
  // The session was allowed to run and had nothing to do.
  void WasIdle(Account& account) {
    if (!std::exchange(account.has_work, false)) return;
    --with_work_;
    if (stopped_[stops_ % kStops] != &account) stopped_[++stops_ % kStops] = &account;
  }
  // The session has work, and must not run for a while, so that no other one waits for it.
  void MustWait(Account& account) {
    WasIdle(account);
    account.ended_ns = 0;
  }
  // Whether any session has work, as far as is known.
  bool has_work() const { return with_work_ != 0; }
  // Whether the device is kept free for a session of this share before a slice of another one begins that
  // is likely to take `typical_ns`.
  bool IsAwaited(uint64_t typical_ns) const;

 private:
  // The last that stopped: more do so hardly ever before a long command.
  static constexpr size_t kStops = 8;

  Account* Awaited(const Account& account, uint64_t now_ns) const;
  static uint64_t MostAwaitNs(uint64_t typical_ns) { return std::min(typical_ns / kAwaitPart, kMaxAwaitNs); }

  const uint64_t slice_ns_;
  uint64_t (*const now_ns_)();
  const uint32_t usual_weight_;
  AccountList<Account> accounts_;
  int with_work_ = 0;
  std::array<Account*, kStops> stopped_ = {};
  size_t stops_ = 0;
  uint64_t least_used_ns_ = UINT64_MAX;  // of sessions with work; UINT64_MAX if none has any
  uint64_t floor_ns_ = 0;                // its highest value so far, with which new sessions begin
};

}  // namespace xpud::scheduler
