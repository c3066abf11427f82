// How long one device worked, and for which session. An asynchronous device reports when commands have ended,
// not when they ran, and work of several queues may run at once. The time between two ends is charged to the
// work that ended last, so the charges add up to the time that the device worked. REQUIRES: the lane's
// thread.
#pragma once

#include <algorithm>
#include <cstdint>

namespace xpud::stream {

class DeviceTime {
 public:
  // Work that was sent, or began, at `sent_ns` has ended. Returns the time that it is charged.
  uint64_t Charge(uint64_t sent_ns, uint64_t ended_ns) {
    const uint64_t from = std::max(sent_ns, ended_ns_), took = ended_ns - std::min(from, ended_ns);
    ended_ns_ = std::max(ended_ns_, ended_ns);
    busy_ns_ += took;
    return took;
  }

  // Total time with work.
  uint64_t busy_ns() const { return busy_ns_; }

 private:
  uint64_t ended_ns_ = 0;  // the last work
  uint64_t busy_ns_ = 0;
};

// The work of an asynchronous device for one session.
struct DeviceWork {
  uint64_t waited_ns = 0;          // how long the commands of this turn had waited for it
  uint64_t used_ns = 0;            // total time charged
  uint64_t ended_ns = 0;           // when work was last found to have ended
  uint64_t occupied_since_ns = 0;  // since when some was always in flight; 0: none is
};

}  // namespace xpud::stream
