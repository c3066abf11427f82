// How long a session's commands waited for their turn: time in which there were some, the lane ran none of
// them, and the session's own work was not in their way. It is told of moments at which the clock is read
// anyway, so it costs a few instructions. REQUIRES: the lane's thread.
//
// Commands that were seen wait until they are run. Those that came since the last look may have come at any
// time since then: they count half of it, which is right on average.
#pragma once

#include <cstdint>

namespace xpud::session {

class QueueWait {
 public:
  // There were no commands at `now`, as far as is known.
  void SawNone(uint64_t now) { Ended(now, Rest::kNone); }
  // Some run from `now` on. Returns how long they waited.
  uint64_t Begins(uint64_t now) {
    if (rest_ == Rest::kBehindOwn) return 0;
    const uint64_t since = now - (looked_ns_ < now ? looked_ns_ : now);
    return rest_ == Rest::kWaiting ? since : since / 2;
  }
  // What remains of the commands that were there.
  enum class Rest { kNone, kWaiting, kBehindOwn };
  // Run until `now`.
  void Ended(uint64_t now, Rest rest) {
    looked_ns_ = now;
    rest_ = rest;
  }
  // The rest was skipped in favour of another session.
  void HeldBack() {
    if (rest_ == Rest::kBehindOwn) rest_ = Rest::kWaiting;
  }

 private:
  uint64_t looked_ns_ = UINT64_MAX;  // time of the last look; never before the first one
  Rest rest_ = Rest::kNone;
};

}  // namespace xpud::session
