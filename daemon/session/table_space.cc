#include "daemon/session/table_space.h"

#include "absl/strings/str_cat.h"

namespace xpud::session {

absl::Status TableSpace::Take(uint32_t uid, uint64_t entries) {
  const auto found = of_user_.find(uid);
  const uint64_t has = found == of_user_.end() ? 0 : found->second;
  if (has + entries > kMostOfUser) {
    return absl::ResourceExhaustedError(absl::StrCat("the sessions of user ", uid, " have room for ", has,
                                                     " buffers; ", kMostOfUser, " are allowed"));
  }
  of_user_[uid] = has + entries;
  return absl::OkStatus();
}

void TableSpace::Return(uint32_t uid, uint64_t entries) {
  if (entries == 0) return;
  const auto found = of_user_.find(uid);
  found->second -= entries;
  if (found->second == 0) of_user_.erase(found);
}

}  // namespace xpud::session
