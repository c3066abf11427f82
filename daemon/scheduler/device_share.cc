#include "daemon/scheduler/device_share.h"

#include <algorithm>

namespace xpud::scheduler {

uint64_t DeviceShare::Update(Account& account, const stream::DeviceWork& work) {
  const uint64_t more = work.used_ns - account.counted_ns;
  if (more != 0) {
    if (work.ended_ns - account.work.ended_ns > kIdleForNs)
      account.used_ns = std::max(account.used_ns, floor_ns_);
    account.used_ns += more * usual_weight_ / account.weight;
    total_ns_ += more;
    account.counted_ns = work.used_ns;
  }
  account.work = work;
  ended_ns_ = std::max(ended_ns_, work.ended_ns);
  return more;
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

void DeviceShare::Look(Account& account, uint64_t now_ns) {
  const uint64_t since = account.work.occupied_since_ns, began = since != 0 ? since : now_ns;
  const bool has_work = since != 0 || account.waits, had_work = account.busy_since != 0;
  // One that waited goes on when its next work begins; another one has paused between its works.
  const bool paused = since != account.occupied_since && !account.waited;
  const uint64_t passed = now_ns - std::min(account.looked_ns, now_ns);
  if (!has_work)
    account.busy_since = 0;
  else if (!had_work || paused)
    account.busy_since = began;
  if (has_work && had_work && !paused)
    account.pause_ns = std::min(account.pause_ns + passed / kPausePart, kMaxPauseNs);
  else
    account.pause_ns -= std::min(account.pause_ns, passed);
  if (account.pause_ns == 0 || account.wants_since == 0) account.wants_since = account.busy_since;
  account.looked_ns = now_ns;
  account.occupied_since = since;
  account.waited = account.waits;
}

void DeviceShare::BeginRound(uint64_t now_ns) {
  least_used_ns_ = UINT64_MAX;
  uint64_t least_active_ns = UINT64_MAX;
  active_ = 0;
  keeps_busy_ = false;
  for (Account& account : accounts_) {
    Look(account, now_ns);
    if (now_ns - account.work.ended_ns > kIdleForNs) continue;
    ++active_;
    least_active_ns = std::min(least_active_ns, account.used_ns);
    keeps_busy_ |= account.busy_since != 0 && now_ns - account.busy_since > kBusyForNs;
    if (account.wants_since != 0 && now_ns - account.wants_since > kBusyForNs)
      least_used_ns_ = std::min(least_used_ns_, account.used_ns);
  }
  if (least_active_ns != UINT64_MAX) floor_ns_ = std::max(floor_ns_, least_active_ns);
  if (least_used_ns_ == UINT64_MAX) return;
  for (Account& account : accounts_) {
    const uint64_t most = std::max(kMaxDebtNs, kMaxDebtNs * usual_weight_ / account.weight);
    account.used_ns = std::min(account.used_ns, least_used_ns_ + most);
  }
}

}  // namespace xpud::scheduler
