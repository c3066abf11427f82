// Measures a session's turns on a lane: how long its commands waited for a turn, how long a turn took and,
// where appending a command executes it, how long each command took. It is told of moments at which the clock
// is read anyway, so it costs a few instructions: commands between two readings share the time. REQUIRES: the
// lane's thread.
#pragma once

#include <cstdint>

#include "daemon/session/queue_wait.h"
#include "daemon/tenant/counters.h"

namespace xpud::session {

class TurnMeter {
 public:
  // `executes`: appending executes. `counters` outlives the meter.
  TurnMeter(bool executes, SessionCounters& counters) : executes_(executes), counters_(counters) {}

  // There were no commands at `now_ns`, as far as is known.
  void SawNone(uint64_t now_ns) { wait_.SawNone(now_ns); }
  // The session was skipped in favour of another one.
  void HeldBack() { wait_.HeldBack(); }

  // A turn begins, of commands that were taken. Returns how long they had waited.
  uint64_t Begin(uint64_t now_ns) {
    began_ns_ = counted_ns_ = now_ns;
    waited_ns_ = wait_.Begins(now_ns);
    ran_ = counted_ = 0;
    return waited_ns_;
  }
  // A command of the turn ran, by `now_ns`: the last reading of the clock.
  void Ran(uint64_t now_ns) {
    ++ran_;
    if (executes_ && now_ns != counted_ns_) CountDurations(now_ns);
  }
  // Commands of the turn that ran.
  uint64_t ran() const { return ran_; }
  // `rest`: what remains of the commands.
  void End(uint64_t now_ns, QueueWait::Rest rest) {
    counters_.queue_wait_ns += waited_ns_;
    if (ran_ != 0) counters_.queue_wait.Add(waited_ns_, ran_);
    if (ran_ != 0 && executes_) {
      counters_.latency.Add(now_ns - began_ns_ + waited_ns_, ran_);
      if (ran_ != counted_) CountDurations(now_ns);
    }
    wait_.Ended(now_ns, rest);
    ended_ns_ = now_ns;
  }

  // The last turn that ended.
  uint64_t began_ns() const { return began_ns_; }
  uint64_t ended_ns() const { return ended_ns_; }

 private:
  // Of the commands since the last reading.
  void CountDurations(uint64_t now_ns) {
    const uint64_t count = ran_ - counted_;
    counters_.duration.Add((now_ns - counted_ns_) / count, count);
    counted_ns_ = now_ns;
    counted_ = ran_;
  }

  const bool executes_;
  SessionCounters& counters_;
  QueueWait wait_;
  uint64_t began_ns_ = 0, ended_ns_ = 0, waited_ns_ = 0;
  uint64_t ran_ = 0;
  uint64_t counted_ = 0, counted_ns_ = 0;  // as far as the durations are counted
};

}  // namespace xpud::session
