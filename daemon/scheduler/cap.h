// The most of a device's time that a tenant gets, also on an idle device: a token bucket that holds little,
// so that each second shows the same. Once empty, it must be half full before the tenant goes on, so that the
// lane need not wake for each command. Not thread-safe.
//
//   in any second:  used <= kAim of `most` + the bucket + what was begun before it was empty
#pragma once

#include <algorithm>
#include <cstdint>

#include "daemon/tenant/time_grant.h"

namespace xpud::scheduler {

class Cap {
 public:
  static constexpr uint64_t kWindowNs = 10'000'000;  // the bucket holds so much of `most`
  static constexpr uint64_t kAim = 97;               // per cent of `most`: the rest is for what was begun

  // `most`: in hundredths of a per cent; kWhole: no cap.
  void Set(uint32_t most) {
    if (most == most_) return;
    most_ = most;
    tokens_ns_ = 0;
    empty_ = false;
  }
  bool is_set() const { return most_ < TimeGrant::kWhole; }

  // Called in each round.
  void Accrue(uint64_t now_ns) {
    const uint64_t passed = std::min(now_ns - std::min(seen_ns_, now_ns), kMaxPassedNs);
    seen_ns_ = now_ns;
    fraction_ += passed * most_ * kAim;
    tokens_ns_ = std::min(tokens_ns_ + static_cast<int64_t>(fraction_ / kDivisor), bucket_ns());
    fraction_ %= kDivisor;
    if (tokens_ns_ <= 0)
      empty_ = true;
    else if (tokens_ns_ >= bucket_ns() / 2)
      empty_ = false;
  }
  void Use(uint64_t ns) {
    if (!is_set()) return;
    tokens_ns_ -= static_cast<int64_t>(ns);
    if (tokens_ns_ <= 0) empty_ = true;
  }
  // Whether work may begin while about `in_flight_ns` of it are under way.
  bool Allows(uint64_t in_flight_ns) const { return !empty_ && RoomNs() > in_flight_ns; }
  // How much may be under way.
  uint64_t RoomNs() const { return static_cast<uint64_t>(std::max<int64_t>(tokens_ns_, 0)); }
  // When work may begin again if none is under way; UINT64_MAX: never.
  uint64_t DueNs() const {
    if (most_ == 0) return UINT64_MAX;
    const int64_t missing = std::max<int64_t>(bucket_ns() / 2 - tokens_ns_, 1);
    return seen_ns_ + static_cast<uint64_t>(missing) * kDivisor / (most_ * kAim) + 1;
  }
  // Whether more was used than the tenant would have after it was idle.
  bool owes() const { return is_set() && tokens_ns_ < bucket_ns(); }

 private:
  static constexpr uint64_t kDivisor = uint64_t{TimeGrant::kWhole} * 100;
  static constexpr uint64_t kMaxPassedNs = 3'600'000'000'000;

  int64_t bucket_ns() const {
    return std::max<int64_t>(static_cast<int64_t>(kWindowNs * most_ / TimeGrant::kWhole), 2);
  }

  uint32_t most_ = TimeGrant::kWhole;
  uint64_t seen_ns_ = 0, fraction_ = 0;
  int64_t tokens_ns_ = 0;
  bool empty_ = false;
};

}  // namespace xpud::scheduler
