// How long a session's commands waited for their turn: time during which there were some, and the daemon ran
// none of them, though the session's own work was not in their way. Told of moments at which the clock is
// read anyway, so it costs a few instructions. The engine thread only.
//
// Commands that were seen waited for as long as nobody ran them. Those that came since the last look may have
// come at any time since then: they count half of it, which is right in the mean.
#pragma once

#include <cstdint>

namespace xpud::session {

class QueueWait {
 public:
  // There were no commands at `now`, as far as is known.
  void SawNone(uint64_t now) { Ended(now, Rest::kNone); }
  // Some are run from `now` on. Returns how long they waited.
  uint64_t Begins(uint64_t now) {
    if (rest_ == Rest::kBehindOwn) return 0;
    const uint64_t since = now - (looked_ns_ < now ? looked_ns_ : now);
    return rest_ == Rest::kWaiting ? since : since / 2;
  }
  // What is left of the commands that were there.
  enum class Rest { kNone, kWaiting, kBehindOwn };
  // Run until `now`.
  void Ended(uint64_t now, Rest rest) {
    looked_ns_ = now;
    rest_ = rest;
  }
  // What is left would be run now, but for another session's sake.
  void HeldBack() {
    if (rest_ == Rest::kBehindOwn) rest_ = Rest::kWaiting;
  }

 private:
  uint64_t looked_ns_ = UINT64_MAX;  // since then; never before the first look
  Rest rest_ = Rest::kNone;
};

}  // namespace xpud::session
