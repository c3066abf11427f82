// A part of a device's time that a tenant, or a class, gets at least while it has work. It is due while less
// than that was used; then it goes first. Not thread-safe.
//
// Time used beyond the part is owed, but no more than kMaxDebtNs, so that in no second the part falls short
// by more than that. `extra_ns` is granted in addition in each second, to make up for it.
#pragma once

#include <algorithm>
#include <cstdint>

#include "daemon/tenant/time_grant.h"

namespace xpud::scheduler {

class Guarantee {
 public:
  static constexpr uint64_t kMaxDebtNs = 10'000'000;
  static constexpr uint64_t kMaxCreditNs = 200'000'000;  // a device that was held up does not owe for ever

  // `part`: in hundredths of a per cent; 0: nothing is guaranteed.
  void Set(uint32_t part, uint64_t extra_ns) {
    rate_ = part == 0 ? 0 : part * kSecondNs / TimeGrant::kWhole + extra_ns;
    if (rate_ == 0) credit_ns_ = 0;
  }
  bool is_set() const { return rate_ != 0; }

  // Called in each round. `has_work`: since the last call.
  void Accrue(uint64_t now_ns, bool has_work) {
    const uint64_t passed = std::min(now_ns - std::min(seen_ns_, now_ns), kSecondNs);
    seen_ns_ = now_ns;
    if (rate_ == 0) return;
    if (!has_work) {
      credit_ns_ = std::min<int64_t>(credit_ns_, 0);
      return;
    }
    // In parts of a nanosecond, since rounds are short.
    fraction_ += passed * rate_;
    credit_ns_ += static_cast<int64_t>(fraction_ / kSecondNs);
    fraction_ %= kSecondNs;
    credit_ns_ = std::min(credit_ns_, static_cast<int64_t>(kMaxCreditNs));
  }
  void Use(uint64_t ns) {
    if (rate_ == 0) return;
    credit_ns_ = std::max(credit_ns_ - static_cast<int64_t>(ns), -static_cast<int64_t>(kMaxDebtNs));
  }
  bool due() const { return credit_ns_ > 0; }

 private:
  static constexpr uint64_t kSecondNs = 1'000'000'000;

  uint64_t rate_ = 0;  // nanoseconds a second
  uint64_t seen_ns_ = 0, fraction_ = 0;
  int64_t credit_ns_ = 0;
};

}  // namespace xpud::scheduler
