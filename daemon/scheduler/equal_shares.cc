#include "daemon/scheduler/equal_shares.h"

namespace xpud::scheduler {

void EqualShares::Remove(Policy::Account& account) {
  Account& removed = Of(account);
  lane_.Remove(removed.lane);
  device_.Remove(removed.device);
  accounts_.remove_if([&](const Account& each) { return &each == &removed; });
}

Policy::Answer EqualShares::Decide(Policy::Account& account) {
  Account& asking = Of(account);
  if (device_.HoldsBack(asking.device)) {
    lane_.WasIdle(asking.lane);
    return Answer::kHoldBack;
  }
  switch (lane_.Decide(asking.lane)) {
    case FairShare::Answer::kNotYet:
      return Answer::kHoldBack;
    case FairShare::Answer::kAwaitAnother:
      return Answer::kAwaitAnother;
    case FairShare::Answer::kRun:
      break;
  }
  return Answer::kRun;
}

}  // namespace xpud::scheduler
