// The steady clock in nanoseconds (CLOCK_MONOTONIC), for ages, waits and timestamps. Setting the machine's
// time does not change it. Thread-safe.
#pragma once

#include <chrono>
#include <cstdint>

namespace xpud {

inline uint64_t NowNs() {
  return static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
}

}  // namespace xpud
