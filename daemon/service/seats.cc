#include "daemon/service/seats.h"

#include "absl/strings/str_cat.h"

namespace xpud::service {

absl::Status Seats::Take(uint32_t uid) {
  const auto found = by_user_.find(uid);
  const size_t has = found == by_user_.end() ? 0 : found->second;
  if (has >= max_per_user_) {
    return absl::ResourceExhaustedError(absl::StrCat("user ", uid, " has ", has, " clients connected; ",
                                                     max_per_user_, " are allowed (--user-clients)"));
  }
  if (taken_ >= kMax)
    return absl::ResourceExhaustedError(
        absl::StrCat(taken_, " clients are connected; ", kMax, " are allowed"));
  ++taken_;
  ++by_user_[uid];
  return absl::OkStatus();
}

void Seats::Release(uint32_t uid) {
  --taken_;
  const auto found = by_user_.find(uid);
  if (--found->second == 0) by_user_.erase(found);
}

}  // namespace xpud::service
