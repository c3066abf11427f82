#include "daemon/service/places.h"

#include "absl/strings/str_cat.h"

namespace xpud::service {

absl::Status Places::Take(uint32_t uid) {
  const auto found = of_user_.find(uid);
  const size_t has = found == of_user_.end() ? 0 : found->second;
  if (has >= most_of_user_) {
    return absl::ResourceExhaustedError(absl::StrCat("user ", uid, " has ", has, " clients connected; ",
                                                     most_of_user_, " are allowed (--user-clients)"));
  }
  if (taken_ >= kMax)
    return absl::ResourceExhaustedError(
        absl::StrCat(taken_, " clients are connected; ", kMax, " are allowed"));
  ++taken_;
  ++of_user_[uid];
  return absl::OkStatus();
}

void Places::Release(uint32_t uid) {
  --taken_;
  const auto found = of_user_.find(uid);
  if (--found->second == 0) of_user_.erase(found);
}

}  // namespace xpud::service
