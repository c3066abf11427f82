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

// How much work a session may have on the device. It may always have one command there.
struct InFlightWindow {
  uint64_t ns = UINT64_MAX;  // by prediction; UINT64_MAX: as much as its queues take
  bool one_long = false;     // nothing is begun beside a long command (DeviceWork::kLongNs)
};

// The work of an asynchronous device for one session.
struct DeviceWork {
  static constexpr uint64_t kLongNs = 500'000;

  uint64_t waited_ns = 0;          // how long the commands of this turn had waited for it
  uint64_t used_ns = 0;            // total time charged
  uint64_t ended_ns = 0;           // when work was last found to have ended
  uint64_t occupied_since_ns = 0;  // since when some was always in flight; 0: none is
  uint64_t in_flight_ns = 0;       // what is in flight, as predicted
  uint64_t long_in_flight = 0;     // commands of it that are predicted to take kLongNs or more
  bool apart = false;              // it is in an executor that higher classes do not use

  bool HasRoom(const InFlightWindow& window) const {
    if (window.ns == UINT64_MAX || in_flight_ns == 0) return true;
    return in_flight_ns < window.ns && !(window.one_long && long_in_flight != 0);
  }
};

}  // namespace xpud::stream
