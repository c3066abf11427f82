#include "daemon/records/archive.h"

#include <algorithm>
#include <utility>

namespace xpud::records {

std::vector<std::unique_ptr<Profile>> Archive::Add(EndedSession session) {
  std::vector<std::unique_ptr<Profile>> dropped;
  const auto drop = [&](std::unique_ptr<Profile> profile) {
    if (profile != nullptr) dropped.push_back(std::move(profile));
  };
  drop(session.recorder->End());
  sessions_.push_back(std::move(session));
  if (sessions_.size() > kSessions) {
    for (const Audience audience : {Audience::kOperators, Audience::kUser})
      drop(sessions_.front().recorder->Take(audience));
    sessions_.pop_front();
  }
  for (const Audience audience : {Audience::kOperators, Audience::kUser}) {
    const uint64_t most = std::min(max_commands_, Profile::MostCommands(audience));
    uint64_t kept = 0;
    for (auto each = sessions_.rbegin(); each != sessions_.rend(); ++each) {
      const Profile* const profile = each->recorder->profile(audience);
      if (profile == nullptr) continue;
      kept += profile->counted_commands();
      if (kept > most) drop(each->recorder->Take(audience));
    }
  }
  return dropped;
}

const EndedSession* Archive::Find(uint64_t session) const {
  const auto found = std::find_if(sessions_.begin(), sessions_.end(),
                                  [&](const EndedSession& each) { return each.id == session; });
  return found == sessions_.end() ? nullptr : &*found;
}

}  // namespace xpud::records
