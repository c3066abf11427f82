// Notices sessions of one lane that make no progress, and says so in the event log. REQUIRES: the lane's
// thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "absl/functional/function_ref.h"

#include "daemon/session/device_session.h"
#include "daemon/telemetry/event_log.h"

namespace xpud::lane {

class StallWatch {
 public:
  // `after_ns`: without progress; 0: never. `events` outlives this.
  StallWatch(uint64_t after_ns, uint32_t device, telemetry::EventLog& events)
      : after_ns_(after_ns), device_(device), events_(events) {}

  void SetAfter(uint64_t after_ns) {
    after_ns_ = after_ns;
    next_ns_ = 0;
  }
  // Whether sessions are watched.
  bool watches() const { return after_ns_ != 0; }
  // Whether it is time to look at the sessions again.
  bool IsDue(uint64_t now_ns) const { return after_ns_ != 0 && now_ns >= next_ns_; }
  // Looks at a session. Call it for each one, then Looked. `others`: names those that have work, too.
  void Look(const session::Peer& peer, uint64_t session, const session::DeviceSession::WaitState& state,
            uint64_t now_ns, absl::FunctionRef<std::string()> others);
  // Forgets the sessions that it was not shown.
  void Looked(uint64_t now_ns);
  // How many there were, by cause.
  const std::map<std::string, uint64_t>& counts() const { return counts_; }
  // How long the lane may sleep while a session has something under way.
  uint64_t period_ns() const { return after_ns_ / 4; }

 private:
  struct Stalled {
    uint64_t since_ns;
    uint64_t looked_ns;
  };

  uint64_t after_ns_;
  const uint32_t device_;
  telemetry::EventLog& events_;
  uint64_t next_ns_ = 0;
  std::map<uint64_t, Stalled> stalled_;  // by session
  std::map<std::string, uint64_t> counts_;
};

}  // namespace xpud::lane
