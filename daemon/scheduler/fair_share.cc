#include "daemon/scheduler/fair_share.h"

#include <algorithm>

namespace xpud::scheduler {

void FairShare::BeginRound() {
  least_used_ns_ = UINT64_MAX;
  for (const Account& account : accounts_) {
    if (account.has_work) least_used_ns_ = std::min(least_used_ns_, account.used_ns);
  }
  if (least_used_ns_ != UINT64_MAX) floor_ns_ = std::max(floor_ns_, least_used_ns_);
}

void FairShare::Remove(Account& account) {
  WasIdle(account);
  std::ranges::replace(stopped_, &account, static_cast<Account*>(nullptr));
  accounts_.Remove(account);
}

FairShare::Account* FairShare::Awaited(const Account& account, uint64_t now_ns) const {
  const uint64_t most = MostAwaitNs(account.typical_ns);
  for (Account* const other : stopped_) {
    if (other != nullptr && !other->has_work && other->used_ns < account.used_ns &&
        now_ns - other->ended_ns < most)
      return other;
  }
  return nullptr;
}

bool FairShare::IsAwaited(uint64_t typical_ns) const {
  if (typical_ns < kLongNs) return false;
  const uint64_t most = MostAwaitNs(typical_ns), now = now_ns_();
  return std::ranges::any_of(stopped_, [&](const Account* other) {
    return other != nullptr && !other->has_work && now - other->ended_ns < most;
  });
}

FairShare::Answer FairShare::Decide(const Account& account) {
  if (account.used_ns > slice_ns_ && account.used_ns - slice_ns_ > least_used_ns_) return Answer::kNotYet;
  if (account.typical_ns < kLongNs) return Answer::kRun;
  Account* other = Awaited(account, now_ns_());
  if (other == nullptr) return Answer::kRun;
  other->awaited = true;
  return Answer::kAwaitAnother;
}

void FairShare::HasWork(Account& account, uint64_t since_ns) {
  if (std::exchange(account.has_work, true)) return;
  ++with_work_;
  if (floor_ns_ > kMaxCreditNs) account.used_ns = std::max(account.used_ns, floor_ns_ - kMaxCreditNs);
  if (account.awaited) account.used_ns += std::min(since_ns - account.ended_ns, kMaxAwaitNs);
  account.awaited = false;
}

void FairShare::Ran(Account& account, uint64_t start_ns, uint64_t end_ns, uint64_t helped_ns) {
  HasWork(account, start_ns);
  const uint64_t took = end_ns - start_ns;
  account.used_ns += (took + helped_ns) * usual_weight_ / account.weight;
  account.typical_ns = std::max(took, account.typical_ns - account.typical_ns / 4);
  account.ended_ns = end_ns;
}

}  // namespace xpud::scheduler
