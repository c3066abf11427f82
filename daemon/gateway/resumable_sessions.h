// The sessions of remote clients, also those that a client may still come back to: one whose stream was lost
// is held for a while. Any thread; one of its own ends what nobody came back to.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "absl/status/statusor.h"
#include "daemon/gateway/session_relay.h"
#include "daemon/gateway/tenant_places.h"
#include "proto/base/mutex.h"

namespace xpud::remote {

class ResumableSessions {
 public:
  // What a session consists of, to its end; `place` is what it takes.
  struct Session {
    std::string tenant;
    Place place;
    SessionRelay relay;
  };

  explicit ResumableSessions(std::chrono::milliseconds hold);
  ~ResumableSessions();
  ResumableSessions(const ResumableSessions&) = delete;
  ResumableSessions& operator=(const ResumableSessions&) = delete;

  std::chrono::milliseconds hold() const { return hold_; }
  // The key by which its client comes back. `cut` ends the stream that serves it now.
  std::string Add(std::shared_ptr<Session> session, std::function<void()> cut);
  // The session of that key, for another stream of the same tenant's: where an earlier stream has not ended,
  // as its end was not heard here, it is cut off. NotFound: there is none (any more).
  absl::StatusOr<std::shared_ptr<Session>> Resume(const std::string& key, const std::string& tenant,
                                                  std::function<void()> cut);
  // Its stream was lost: it ends after a while.
  void Hold(const std::string& key);
  void Remove(const std::string& key);

 private:
  using Clock = std::chrono::steady_clock;
  struct Entry {
    std::shared_ptr<Session> session;
    std::function<void()> cut;             // set while a stream serves it
    std::optional<Clock::time_point> end;  // set while none does
  };
  void EndThoseForgotten();

  const std::chrono::milliseconds hold_;
  Mutex mutex_;
  CondVar changed_;
  std::map<std::string, Entry> entries_ ABSL_GUARDED_BY(mutex_);
  bool stops_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread reaper_;  // last: it uses the others
};

}  // namespace xpud::remote
