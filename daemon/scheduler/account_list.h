// The accounts of a policy. Those of sessions that rest are left out when one goes through the list, so that
// they cost nothing. Accounts do not move. REQUIRES: the lane's thread.
#pragma once

#include <iterator>
#include <list>
#include <utility>

namespace xpud::scheduler {

// `Account` derives from AccountList<Account>::Entry.
template <typename Account>
class AccountList {
 public:
  class Entry {
    friend class AccountList;
    std::list<Account>::iterator at_;
    bool rests_ = false;
  };

  Account& Add() {
    Account& added = awake_.emplace_back();
    added.at_ = std::prev(awake_.end());
    return added;
  }
  void Remove(Account& account) { (account.rests_ ? resting_ : awake_).erase(account.at_); }
  void Rests(Account& account) {
    if (!std::exchange(account.rests_, true)) resting_.splice(resting_.end(), awake_, account.at_);
  }
  void Wakes(Account& account) {
    if (std::exchange(account.rests_, false)) awake_.splice(awake_.end(), resting_, account.at_);
  }

  auto begin() { return awake_.begin(); }
  auto end() { return awake_.end(); }
  auto begin() const { return awake_.begin(); }
  auto end() const { return awake_.end(); }
  bool all_rest() const { return awake_.empty(); }

 private:
  std::list<Account> awake_, resting_;
};

}  // namespace xpud::scheduler
