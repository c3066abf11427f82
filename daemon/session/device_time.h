// How long one device worked, and for whom. A device that works on its own tells when commands have ended,
// not when they ran; work of several queues may run at once. All time between two ends is that of the work
// which ended then, so that what is charged adds up to the time that the device worked. The engine thread
// only.
#pragma once

#include <algorithm>
#include <cstdint>

namespace xpud::session {

class DeviceTime {
 public:
  // Work that was sent, or begun, at `sent_ns` has ended. Returns what it is charged.
  uint64_t Charge(uint64_t sent_ns, uint64_t ended_ns) {
    const uint64_t from = std::max(sent_ns, ended_ns_), took = ended_ns - std::min(from, ended_ns);
    ended_ns_ = std::max(ended_ns_, ended_ns);
    busy_ns_ += took;
    return took;
  }

  // Time during which there was work.
  uint64_t busy_ns() const { return busy_ns_; }

 private:
  uint64_t ended_ns_ = 0;  // the last work
  uint64_t busy_ns_ = 0;
};

// What a device that works on its own does for one session.
struct DeviceWork {
  uint64_t used_ns = 0;            // in all, as charged
  uint64_t ended_ns = 0;           // when work was last found to have ended
  uint64_t occupied_since_ns = 0;  // since when there was always some under way; 0: there is none
};

}  // namespace xpud::session
