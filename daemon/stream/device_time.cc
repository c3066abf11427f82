#include "daemon/stream/device_time.h"

#include <utility>

namespace xpud::stream {
namespace {

// Gives out `total` in parts of `whole`, a sum that Next's parts add up to; they add up to `total` exactly.
class Division {
 public:
  Division(uint64_t total, uint64_t whole) : total_(total), whole_(whole) {}
  uint64_t Next(uint64_t part) {
    if (part == 0 || whole_ == 0) return 0;
    const auto given = static_cast<uint64_t>(static_cast<unsigned __int128>(total_) * part / whole_);
    total_ -= given;
    whole_ -= part;
    return given;
  }

 private:
  uint64_t total_, whole_;  // what is left
};

}  // namespace

void DeviceTime::Account::Charge(uint64_t ns) {
  used_ns_ += ns;
  counters_.busy_ns += ns;
  counters_.duration.Add(ns / commands_, commands_);
  commands_ = predicted_ns_ = seen_ns_ = 0;
}

uint64_t DeviceTime::Ended(uint64_t sent_ns, uint64_t ended_ns) {
  const uint64_t from = std::max(sent_ns, ended_ns_), took = ended_ns - std::min(from, ended_ns);
  ended_ns_ = std::max(ended_ns_, ended_ns);
  busy_ns_ += took;
  return took;
}

uint64_t DeviceTime::Ended(Account& account, const Work& work, uint64_t in_flight_ns, bool alone) {
  const uint64_t took = Ended(work.sent_ns, work.ended_ns);
  if (account.commands_ == 0) in_window_.push_back(&account);
  account.commands_ += work.commands;
  account.predicted_ns_ += work.predicted_ns;
  account.seen_ns_ += took;
  window_ns_ += took;
  if (alone || window_ns_ >= kWindowNs) Settle(alone ? 0 : in_flight_ns);
  return took;
}

// If less time went by than was predicted, work ran at once, or faster: each session saves the same part. If
// more did, then what was in flight at the end may have run, or somebody's work is slower than predicted: of
// those whose ends took longer.
void DeviceTime::Settle(uint64_t in_flight_ns) {
  if (in_window_.empty()) return;
  const uint64_t time_ns = std::exchange(window_ns_, 0) + std::exchange(left_ns_, 0);
  uint64_t predicted_ns = 0, late_ns = 0, commands = 0;
  const auto late = [](const Account& account) {
    return account.seen_ns_ - std::min(account.seen_ns_, account.predicted_ns_);
  };
  for (const Account* account : in_window_) {
    predicted_ns += account->predicted_ns_;
    late_ns += late(*account);
    commands += account->commands_;
  }
  const uint64_t excess_ns = time_ns - std::min(time_ns, predicted_ns);
  left_ns_ = std::min({excess_ns, in_flight_ns, kMaxLeftNs});
  Division expected(time_ns - excess_ns, predicted_ns), by_late(excess_ns - left_ns_, late_ns),
      by_commands(late_ns == 0 ? excess_ns - left_ns_ : 0, commands);
  for (Account* account : std::exchange(in_window_, {})) {
    account->Charge(expected.Next(account->predicted_ns_) + by_late.Next(late(*account)) +
                    by_commands.Next(account->commands_));
  }
}

}  // namespace xpud::stream
