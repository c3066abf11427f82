// The sessions of a lane, in the order of their turns. Most of many sessions have nothing to do, and a look
// at each would cost the others time. So sessions that were idle for a while sleep one by one: nobody looks
// at them until their clients signal their doorbells. REQUIRES: the lane's thread.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <utility>

#include "absl/functional/function_ref.h"
#include "daemon/scheduler/policy.h"
#include "daemon/session/device_session.h"

namespace xpud::lane {

class Turns {
 public:
  static constexpr size_t kKeptAwake = 8;               // the look at so few costs nothing that matters
  static constexpr uint64_t kRestAfterNs = 10'000'000;  // idle for so long, a session may sleep
  static constexpr uint64_t kRestPeriodNs = 1'000'000;  // sessions are put to sleep together, this often
  static constexpr uint64_t kLookPeriodNs = 20'000;     // doorbells are looked at while the lane works

  struct Turn {
    std::unique_ptr<session::DeviceSession> session;
    scheduler::Policy::Account* account;
    uint64_t idle_since_ns = 0;  // 0: it is not idle
    bool asleep = false;
    bool ran = false;    // in this round
    bool waits = false;  // it has commands, and its tenant may not run now
  };

  // Watches doorbells with `epoll`, whose other descriptors have the data 0.
  Turns(int epoll, scheduler::Policy& policy) : epoll_(epoll), policy_(policy) {}
  Turns(const Turns&) = delete;
  Turns& operator=(const Turns&) = delete;

  void Add(std::unique_ptr<session::DeviceSession> session, scheduler::Policy::Account& account);
  // Returns the session, or null if there is none.
  std::unique_ptr<session::DeviceSession> Remove(uint64_t id);
  session::DeviceSession* Find(uint64_t id) const {
    const auto found = by_id_.find(id);
    return found == by_id_.end() ? nullptr : found->second->session.get();
  }
  // REQUIRES: the session is there.
  scheduler::Policy::Account& AccountOf(uint64_t id) const { return *by_id_.at(id)->account; }
  // Calls `visit` for each session, by id.
  void ForEach(absl::FunctionRef<void(session::DeviceSession&)> visit) const {
    for (const auto& [id, turn] : by_id_) visit(*turn->session);
  }
  bool empty() const { return by_id_.empty(); }

  // Those that have turns. Turns may be removed while one goes through the list.
  std::list<Turn>& awake() { return awake_; }
  const std::list<Turn>& awake() const { return awake_; }
  // What came of a turn: whether the session has, or may have, something to do without being woken.
  static void Took(Turn& turn, bool busy, uint64_t now_ns) {
    if (busy)
      turn.idle_since_ns = 0;
    else if (turn.idle_since_ns == 0)
      turn.idle_since_ns = now_ns;
  }

  // One that ran has its next turn after the others: who is asked first gets the room that an asynchronous
  // device has.
  void GoesLast(std::list<Turn>::iterator turn) {
    if (std::exchange(turn->ran, false)) awake_.splice(awake_.end(), awake_, turn);
  }
  // Puts sessions to sleep that were idle for long, if it is time for that.
  void RestIdle(uint64_t now_ns);
  // Wakes those whose doorbells were signalled, if it is time for a look, or at once.
  void WakeRung(uint64_t now_ns) {
    if (!asleep_.empty() && now_ns - looked_ns_ >= kLookPeriodNs) WakeRungNow(now_ns);
  }
  void WakeRungNow(uint64_t now_ns);

  // The lane is about to sleep: tells all clients that doorbells are needed, but for those whose commands
  // wait anyway. Returns whether any other session has commands; then the lane must not sleep.
  bool PrepareSleep();
  // The lane woke up.
  void EndSleep(uint64_t now_ns);

 private:
  void Wake(std::list<Turn>::iterator turn, uint64_t now_ns);

  const int epoll_;
  scheduler::Policy& policy_;
  std::list<Turn> awake_, asleep_;
  std::map<uint64_t, std::list<Turn>::iterator> by_id_;
  uint64_t rested_ns_ = 0, looked_ns_ = 0;
};

}  // namespace xpud::lane
