// Decides which session of a lane runs next. Each lane has one; Lane::Options brings it. REQUIRES: the lane's
// thread.
#pragma once

#include <cstdint>

#include "daemon/stream/device_time.h"
#include "daemon/tenant/tenant.h"
#include "daemon/tenant/time_grant.h"

namespace xpud::scheduler {

class Policy {
 public:
  // A session's account; the policy owns it.
  class Account {
   protected:
    ~Account() = default;
  };
  enum class Answer {
    kRun,           // the session may run a slice
    kHoldBack,      // another session goes first; ask again in the next round
    kAwaitAnother,  // the device is kept free for a moment for another session
  };

  virtual ~Policy() = default;

  // A session of this tenant, and what the tenant is granted as of now, for all its sessions.
  virtual Account& Add(const Tenant& tenant, const TimeGrant& grant) = 0;
  // The tenant, if it has sessions, is granted something else.
  virtual void Change(const Tenant& tenant, const TimeGrant& grant) = 0;
  virtual void Remove(Account& account) = 0;
  // Called before each round of turns: Update for each session, then BeginRound.
  virtual void Update(Account& account, const stream::DeviceWork& work) = 0;
  virtual void BeginRound(uint64_t now_ns) = 0;
  // Whether a session with work, or not known to have none, may run.
  virtual Answer Decide(Account& account) = 0;
  // The session ran a slice, at this time.
  virtual void Ran(Account& account, uint64_t began_ns, uint64_t ended_ns) = 0;
  // The session was allowed to run, and had nothing to do.
  virtual void WasIdle(Account& account) = 0;
  // The session, which was idle, is asked about no more until it wakes.
  virtual void Rests(Account& account) = 0;
  virtual void Wakes(Account& account) = 0;
};

}  // namespace xpud::scheduler
