// How long sessions had commands and were held back in favour of others, or because of what their tenant is
// granted. Plain values. The times of a tenant's sessions add up to the tenant's: a moment in which several
// of them are held back counts once.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "proto/base/histogram.h"

namespace xpud {

enum class HeldCause : uint8_t {
  kClass,   // a higher class, or the part that another class or tenant is guaranteed, goes first
  kCap,     // the tenant has had the most that it may have
  kPaused,  // the tenant is paused
};
constexpr size_t kHeldCauses = 3;
constexpr std::array<const char*, kHeldCauses> kHeldCauseNames = {"class", "cap", "paused"};

struct HeldTimes {
  std::array<uint64_t, kHeldCauses> ns = {};
  // How long work that began after a pause had waited for work of lower classes.
  Histogram for_lower;

  HeldTimes& operator+=(const HeldTimes& other) {
    for (size_t i = 0; i < kHeldCauses; ++i) ns[i] += other.ns[i];
    for_lower += other.for_lower;
    return *this;
  }
};

}  // namespace xpud
