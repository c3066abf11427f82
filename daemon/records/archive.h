// The recorders of sessions that have ended, the newest: what their last commands were, and profiles that
// nobody has read yet. REQUIRES: the lane's thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "daemon/records/recorder.h"
#include "daemon/tenant/tenant.h"

namespace xpud::records {

struct EndedSession {
  uint64_t id = 0;
  int32_t pid = 0;
  Tenant tenant = {};
  std::string name = {};    // of the client
  std::string reason = {};  // why it ended
  uint64_t ended_ns = 0;
  uint64_t completed = 0;              // sequence of its last command that had completed
  std::string waited_for = {};         // what its next command waited for; empty: it had none
  std::shared_ptr<Recorder> recorder;  // records no more
};

class Archive {
 public:
  static constexpr size_t kSessions = 32;

  // `max_commands`: of all profiles of an audience together, at most Profile::MostCommands.
  explicit Archive(uint64_t max_commands = Profile::kMaxCommands) : max_commands_(max_commands) {}

  // Drops the oldest sessions beyond kSessions, and the oldest profiles beyond the limit. Returns the
  // profiles that nobody can read any more: to free large ones takes long.
  [[nodiscard]] std::vector<std::unique_ptr<Profile>> Add(EndedSession session);
  // Returns null if the session did not end lately.
  const EndedSession* Find(uint64_t session) const;
  const std::deque<EndedSession>& sessions() const { return sessions_; }  // the oldest first

 private:
  const uint64_t max_commands_;
  std::deque<EndedSession> sessions_;
};

}  // namespace xpud::records
