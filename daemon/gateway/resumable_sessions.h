// The sessions of remote clients, including those whose stream was lost: these are held for a while so that
// the client can resume them. Thread-safe; a thread of its own ends expired sessions.
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
  // A session and its place; both live until the session ends.
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
  // Returns the key with which the client can resume. `cut` ends the stream that serves the session now.
  std::string Add(std::shared_ptr<Session> session, std::function<void()> cut);
  // Returns the session of `key` for another stream of the same tenant. If an earlier stream is still open,
  // because its loss was not noticed, it is cancelled. Returns NotFound if there is no such session (any
  // more).
  absl::StatusOr<std::shared_ptr<Session>> Resume(const std::string& key, const std::string& tenant,
                                                  std::function<void()> cut);
  // Called when the stream was lost: the session ends after a while.
  void Hold(const std::string& key);
  void Remove(const std::string& key);

 private:
  using Clock = std::chrono::steady_clock;
  struct Entry {
    std::shared_ptr<Session> session;
    std::function<void()> cut;             // set while a stream serves the session
    std::optional<Clock::time_point> end;  // set while no stream does
  };
  void EndThoseForgotten();

  const std::chrono::milliseconds hold_;
  Mutex mutex_;
  CondVar changed_;
  std::map<std::string, Entry> entries_ ABSL_GUARDED_BY(mutex_);
  bool stops_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread reaper_;  // last member: the thread uses the others
};

}  // namespace xpud::remote
