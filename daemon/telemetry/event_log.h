// Events of the daemon for operators: a list of the latest, bounded in number and size. Thread-safe.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "daemon/telemetry/recent_list.h"
#include "daemon/tenant/tenant.h"

namespace xpud::telemetry {

struct Event {
  const char* kind;  // "session_opened"; one of proto/control's
  struct Session {
    uint64_t id = 0;
    int32_t pid = 0;
    Tenant tenant = {};
    std::string name = {};  // what the client calls itself
  };
  std::optional<Session> session = std::nullopt;
  std::string claim = {};  // the key of the claim that was made, changed or ended
  std::optional<uint32_t> device = std::nullopt;
  std::optional<int32_t> executor_pid = std::nullopt;
  std::string text = {};  // the reason, or details

  // Set by the list.
  uint64_t sequence = 0;  // from 1, without gaps
  uint64_t time_ns = 0;   // monotonic
  int64_t unix_ms = 0;    // by the machine's clock, for people
};

class EventLog {
 public:
  static constexpr size_t kMax = 1024;     // events
  static constexpr size_t kMaxText = 256;  // bytes of a name or text
  using Events = RecentList<Event>::Items;

  void Add(Event event);
  Events After(uint64_t sequence, size_t most) const { return events_.After(sequence, most); }
  Events AwaitAfter(uint64_t sequence, size_t most, std::chrono::nanoseconds patience) const {
    return events_.AwaitAfter(sequence, most, patience);
  }
  void End() { events_.End(); }
  bool ended() const { return events_.ended(); }
  const RecentList<Event>& list() const { return events_; }

 private:
  RecentList<Event> events_{kMax};
};

}  // namespace xpud::telemetry
