// What happened in the daemon, for operators: a list of the latest, bounded in number and size. Owned by the
// engine. Any thread; who adds never waits for who reads: a slow reader misses events, and sees by the gap in
// their numbers how many.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "daemon/memory/tenant.h"
#include "proto/base/mutex.h"

namespace xpud::scheduler {

struct Event {
  const char* kind;  // "session_opened"; one of proto/control's
  struct Session {
    uint64_t id = 0;
    int32_t pid = 0;
    Tenant tenant = {};
    std::string name = {};  // what the client calls itself
  };
  std::optional<Session> session = std::nullopt;
  std::optional<uint32_t> device = std::nullopt;
  std::optional<int32_t> executor_pid = std::nullopt;
  std::string text = {};  // why, or what

  // The list fills these in.
  uint64_t sequence = 0;  // from 1, without gaps
  uint64_t time_ns = 0;   // monotonic
  int64_t unix_ms = 0;    // by the machine's clock, for people
};

class EventLog {
 public:
  static constexpr size_t kMost = 1024;     // events
  static constexpr size_t kMostText = 256;  // bytes of a name or text
  using Events = std::vector<std::shared_ptr<const Event>>;

  void Add(Event event);
  // The first of those with a greater number that are still there, oldest first.
  Events After(uint64_t sequence, size_t most) const;
  // As After, once there is one; nothing when `patience` ran out or the list ended.
  Events AwaitAfter(uint64_t sequence, size_t most, std::chrono::nanoseconds patience) const;

  // Nothing is awaited any more.
  void End();
  bool ended() const;

 private:
  Events Copy(uint64_t sequence, size_t most) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable Mutex mutex_;
  mutable CondVar added_;
  std::deque<std::shared_ptr<const Event>> events_ ABSL_GUARDED_BY(mutex_);
  uint64_t last_ ABSL_GUARDED_BY(mutex_) = 0;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace xpud::scheduler
