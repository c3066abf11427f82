// The sessions of remote clients, by key. A session without any stream is held for a while if its client
// asked for it, so that the client can resume its streams. Thread-safe; a thread of its own ends expired
// sessions.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "absl/status/statusor.h"
#include "daemon/gateway/remote_session.h"
#include "proto/base/mutex.h"

namespace xpud::remote {

class ResumableSessions {
 public:
  // Ends a stream.
  using Cut = std::function<void()>;

  explicit ResumableSessions(std::chrono::milliseconds hold);
  // ResourceExhausted if the thread that ends expired sessions could not be started.
  const absl::Status& status() const { return status_; }
  ~ResumableSessions();
  ResumableSessions(const ResumableSessions&) = delete;
  ResumableSessions& operator=(const ResumableSessions&) = delete;

  std::chrono::milliseconds hold() const { return hold_; }
  // Adds a session, which `cut`'s stream serves on device 0. Returns the session's key.
  std::string Add(std::shared_ptr<RemoteSession> session, Cut cut);
  // A stream of the tenant will serve the session of `key` on `device`. If an earlier stream of that device
  // is still open, because its loss was not noticed, it is cut. Returns NotFound if there is no such session
  // (any more).
  absl::StatusOr<std::shared_ptr<RemoteSession>> Attach(const std::string& key, const std::string& tenant,
                                                        uint32_t device, Cut cut);
  // The tenant's session of `key`. Returns NotFound as Attach.
  absl::StatusOr<std::shared_ptr<RemoteSession>> Find(const std::string& key, const std::string& tenant);
  // The stream of the device was lost. A session that cannot be resumed ends; another one ends a while after
  // its last stream.
  void Detach(const std::string& key, uint32_t device);
  // The session ended on the stream of this device: cuts its other streams.
  void Remove(const std::string& key, uint32_t device);

 private:
  using Clock = std::chrono::steady_clock;
  struct Entry {
    std::shared_ptr<RemoteSession> session;
    std::map<uint32_t, Cut> streams;       // by device
    std::optional<Clock::time_point> end;  // set while there are none
  };
  void EndExpired();

  const std::chrono::milliseconds hold_;
  Mutex mutex_;
  CondVar changed_;
  std::map<std::string, Entry> entries_ ABSL_GUARDED_BY(mutex_);
  bool stops_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status status_;
  std::thread reaper_;  // last member: the thread uses the others
};

}  // namespace xpud::remote
