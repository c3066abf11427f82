#include "daemon/scheduler/device_share.h"

#include <algorithm>

namespace xpud::scheduler {

void DeviceShare::Update(Account& account, const stream::DeviceWork& work) {
  if (work.used_ns != account.counted_ns) {
    if (work.ended_ns - account.work.ended_ns > kIdleForNs)
      account.used_ns = std::max(account.used_ns, floor_ns_);
    account.used_ns += (work.used_ns - account.counted_ns) * TimeGrant::kNormalWeight / account.weight;
    total_ns_ += work.used_ns - account.counted_ns;
    account.counted_ns = work.used_ns;
  }
  account.work = work;
  ended_ns_ = std::max(ended_ns_, work.ended_ns);
}

stream::DeviceWork DeviceShare::Total() const {
  stream::DeviceWork total = {.used_ns = total_ns_, .ended_ns = ended_ns_};
  for (const Account& account : accounts_) {
    const uint64_t since = account.work.occupied_since_ns;
    if (since != 0 && (total.occupied_since_ns == 0 || since < total.occupied_since_ns))
      total.occupied_since_ns = since;
  }
  return total;
}

void DeviceShare::BeginRound(uint64_t now_ns) {
  least_used_ns_ = UINT64_MAX;
  uint64_t least_active_ns = UINT64_MAX;
  for (const Account& account : accounts_) {
    if (now_ns - account.work.ended_ns > kIdleForNs) continue;
    least_active_ns = std::min(least_active_ns, account.used_ns);
    const uint64_t since = account.work.occupied_since_ns;
    if (since != 0 && now_ns - since > kBusyForNs) least_used_ns_ = std::min(least_used_ns_, account.used_ns);
  }
  if (least_active_ns != UINT64_MAX) floor_ns_ = std::max(floor_ns_, least_active_ns);
  if (least_used_ns_ == UINT64_MAX) return;
  for (Account& account : accounts_) account.used_ns = std::min(account.used_ns, least_used_ns_ + kMaxDebtNs);
}

}  // namespace xpud::scheduler
