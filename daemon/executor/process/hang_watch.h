// Finds sessions whose commands hold up a device's executor for longer than a limit. Owned by ExecutorPost.
// REQUIRES: the lane's thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "daemon/executor/process/executor_rings.h"
#include "daemon/executor/process/queue_slots.h"

namespace xpud::executor::process {

class HangWatch {
 public:
  // `rings` and `queues` outlive the watch.
  HangWatch(const ExecutorRings& rings, const QueueSlots& queues) : rings_(rings), queues_(queues) {}

  // Returns the sessions that may hold it up; none if nothing has run for longer than `limit`. Call often.
  // REQUIRES: the rings are online.
  std::vector<uint64_t> Check(std::chrono::milliseconds limit);
  // The present executor is new.
  void Restart() { heads_.clear(); }

 private:
  using Clock = std::chrono::steady_clock;
  struct Head {
    uint64_t position = 0;
    Clock::time_point since;
  };

  const ExecutorRings& rings_;
  const QueueSlots& queues_;
  std::vector<Head> heads_;  // by ring: the executor's position, and since when
};

}  // namespace xpud::executor::process
