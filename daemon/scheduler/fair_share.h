// Who may use a device next. Sessions with work get equal time, whatever their commands cost: time of the
// device where it works while we append (the CPU device), time of appending where it works on its own. One
// that is a slice ahead of the least served waits. Idling saves up a little, so that a session which
// thinks between its commands (a trainer beside servers of large batches) is served at once when it comes
// back, but not more than a long command's length.
//
// A long command is interrupted at most between its groups (on the CPU device). Before one begins, the device
// is kept free for a moment for a session that was served less and stopped only just now: its next command is
// probably on its way. That moment is charged to the session waited for.
//
// Owned by the engine and used on its thread only.
#pragma once

#include <cstdint>
#include <list>

namespace xpud::scheduler {

class FairShare {
 public:
  static constexpr uint64_t kLongNs = 1'000'000;  // a slice of commands worth waiting before
  static constexpr uint64_t kAwaitPart = 20;      // for a twentieth of its length
  static constexpr uint64_t kMaxAwaitNs = 200'000;
  static constexpr uint64_t kMaxCreditNs = 20'000'000;  // what idling saves up

  // One session's use of the device.
  struct Account {
    uint64_t used_ns = 0;
    uint64_t typical_ns = 0;  // of its slices: the longest of late, fading
    uint64_t ended_ns = 0;    // its last slice
    bool has_work = false;
    bool awaited = false;  // another session was held back for it since
  };
  enum class Answer { kRun, kNotYet, kAwaitAnother };

  // `now_ns`: a monotonic clock.
  FairShare(uint64_t slice_ns, uint64_t (*now_ns)()) : slice_ns_(slice_ns), now_ns_(now_ns) {}

  Account& Add() {
    accounts_.emplace_back().used_ns = floor_ns_;
    return accounts_.back();
  }
  void Remove(const Account& account) {
    accounts_.remove_if([&](const Account& each) { return &each == &account; });
  }

  // Once for each round of turns, before its first Ask.
  void BeginRound();
  // Whether a session, with work or not known to have any, may run a slice now.
  Answer Ask(const Account& account);
  // It ran a slice, in this time.
  void Ran(Account& account, uint64_t start_ns, uint64_t end_ns);
  // It was let run and had nothing to do.
  void WasIdle(Account& account) { account.has_work = false; }

 private:
  Account* Awaited(const Account& account, uint64_t now_ns);

  const uint64_t slice_ns_;
  uint64_t (*const now_ns_)();
  std::list<Account> accounts_;
  uint64_t least_used_ns_ = UINT64_MAX;  // of those with work; UINT64_MAX when nobody has any
  uint64_t floor_ns_ = 0;                // the highest that it ever was: where newcomers begin
};

}  // namespace xpud::scheduler
