// Decides which session of a lane runs next. Each lane has one; Lane::Options brings it. REQUIRES: the lane's
// thread.
#pragma once

#include <cstdint>

#include "daemon/stream/device_time.h"
#include "daemon/tenant/held_times.h"
#include "daemon/tenant/tenant.h"
#include "daemon/tenant/time_grant.h"

namespace xpud::scheduler {

class Policy {
 public:
  // What a policy must know of its lane.
  struct Traits {
    uint64_t slice_ns = 100'000;  // how long a session runs before the next one's turn
    bool synchronous = true;      // the device's time is the lane's; else it is what Update says
  };
  // A session's account; the policy owns it.
  class Account {
   protected:
    ~Account() = default;
  };
  enum class Answer {
    kRun,           // the session may run a slice
    kHoldBack,      // another session goes first; ask again in the next round
    kAwaitAnother,  // the device is kept free for a moment for another session
    kWait,          // the tenant may not run, whoever else does; ask again at DueNs
  };
  struct Decision {
    Answer answer = Answer::kRun;
    // If it may run:
    uint64_t slice_ns = 0;
    stream::InFlightWindow window = {};
  };

  virtual ~Policy() = default;

  // A session of this tenant, and what the tenant is granted as of now, for all its sessions.
  virtual Account& Add(const Tenant& tenant, const TimeGrant& grant) = 0;
  virtual void Remove(Account& account) = 0;
  // The tenant, if it has sessions, is granted something else.
  virtual void Change(const Tenant& tenant, const TimeGrant& grant) = 0;
  // What the session weighs beside the others of its tenant, of which most have kSessionWeight.
  virtual void SetWeight(Account& account, uint32_t weight) = 0;
  // Called before each round of turns: Update for each session, then BeginRound.
  virtual void Update(Account& account, const stream::DeviceWork& work) = 0;
  virtual void BeginRound(uint64_t now_ns) = 0;
  // Whether a session with work, or not known to have none, may run.
  virtual Decision Decide(Account& account) = 0;
  // The session ran a slice, at this time, and `work` is what the device has of it now. Before it, the device
  // had worked for it for `helped_ns` beside others' slices.
  virtual void Ran(Account& account, const stream::DeviceWork& work, uint64_t began_ns, uint64_t ended_ns,
                   uint64_t helped_ns) = 0;
  // The session has commands, and was told to wait, or to let another one go first.
  virtual void HeldBack(Account& account) = 0;
  // The session was allowed to run, and has all on the device that it may have there.
  virtual void IsFull(Account& account) = 0;
  // The session has nothing to do.
  virtual void WasIdle(Account& account) = 0;
  // The session, which was idle, is asked about no more until it wakes.
  virtual void Rests(Account& account) = 0;
  virtual void Wakes(Account& account) = 0;
  // When one of those that must wait may run; UINT64_MAX: not before a grant changes.
  virtual uint64_t DueNs() const = 0;
  // How long the session has been held back so far.
  virtual HeldTimes Held(const Account& account) const = 0;
};

}  // namespace xpud::scheduler
