// How long one device worked, and for which session. An asynchronous device reports when commands have ended,
// not when they ran, and work of several sessions may run at once. The time between two ends belongs to the
// work that ended last only if the device runs one after the other. So, while sessions contend, the time of a
// *window* is divided at its end by what their work was predicted to take. Each session is charged once: the
// charges add up to the time that the device worked. REQUIRES: the lane's thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "daemon/tenant/counters.h"

namespace xpud::stream {

class DeviceTime {
 public:
  static constexpr uint64_t kWindowNs = 2'000'000;  // time with work
  static constexpr uint64_t kMaxLeftNs = 20'000'000;

  // A session's work on the device. Its time is charged to `used_ns` and the counters.
  class Account {
   public:
    Account(DeviceTime& time, uint64_t& used_ns, SessionCounters& counters)
        : time_(time), used_ns_(used_ns), counters_(counters) {}
    ~Account() { time_.Settle(0); }
    Account(const Account&) = delete;
    Account& operator=(const Account&) = delete;

   private:
    friend class DeviceTime;
    void Charge(uint64_t ns);

    DeviceTime& time_;
    uint64_t& used_ns_;
    SessionCounters& counters_;
    // Of the window:
    uint64_t commands_ = 0;  // that ended
    uint64_t predicted_ns_ = 0;
    uint64_t seen_ns_ = 0;  // from the ends of others' work to those of its own
  };
  struct Work {
    uint64_t sent_ns = 0;
    uint64_t ended_ns = 0;
    uint64_t commands = 0;
    uint64_t predicted_ns = 0;
  };

  // Work that was sent, or began, at `sent_ns` has ended. Returns the time since work last ended in which
  // there was work.
  uint64_t Ended(uint64_t sent_ns, uint64_t ended_ns);
  // The same for work of a session. `in_flight_ns`: all that is in flight still, as predicted; `alone`:
  // nothing of other sessions is. It is charged by the end of the window.
  uint64_t Ended(Account& account, const Work& work, uint64_t in_flight_ns, bool alone);
  // Ends the window.
  void Settle(uint64_t in_flight_ns);

  // Total time with work.
  uint64_t busy_ns() const { return busy_ns_; }

 private:
  std::vector<Account*> in_window_;
  uint64_t window_ns_ = 0;
  // Time of windows that have ended in which less work ended than there was time for: what was in flight may
  // have used it. At most kMaxLeftNs.
  uint64_t left_ns_ = 0;
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
