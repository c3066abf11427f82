#include "daemon/trace/archive.h"

#include <algorithm>
#include <utility>

namespace xpud::trace {

void Archive::Add(EndedSession session) {
  session.recorder->End();
  sessions_.push_back(std::move(session));
  if (sessions_.size() > kSessions) sessions_.pop_front();
  uint64_t kept = 0;
  for (auto each = sessions_.rbegin(); each != sessions_.rend(); ++each) {
    const Profile* const profile = each->recorder->profile(Audience::kOperators);
    if (profile == nullptr) continue;
    kept += profile->records.added() - profile->records.first();
    if (kept > max_commands_) each->recorder->Take(Audience::kOperators);
  }
}

const EndedSession* Archive::Find(uint64_t session) const {
  const auto found = std::find_if(sessions_.begin(), sessions_.end(),
                                  [&](const EndedSession& each) { return each.id == session; });
  return found == sessions_.end() ? nullptr : &*found;
}

}  // namespace xpud::trace
