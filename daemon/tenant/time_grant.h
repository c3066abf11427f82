// What a tenant is granted of a device's time. A value.
#pragma once

#include <cstdint>

namespace xpud {

// Who goes first. A class is served before those below it, but for the part that each is left: see
// daemon/scheduler/.
enum class PriorityClass : uint8_t { kRealtime, kInteractive, kBatch };

struct TimeGrant {
  static constexpr uint32_t kNormalWeight = 100, kMaxWeight = 10'000;
  static constexpr uint32_t kWhole = 10'000;  // hundredths of a per cent: all of a device's time

  PriorityClass priority = PriorityClass::kInteractive;
  uint32_t weight = kNormalWeight;  // among the tenants of its class: one of weight 200 gets twice as much
  uint32_t least = 0;               // hundredths of a per cent, while the tenant has work
  uint32_t most = kWhole;           // hundredths of a per cent, also on an idle device
  bool paused = false;              // the tenant's sessions wait

  bool operator==(const TimeGrant&) const = default;
};

}  // namespace xpud
