// The clock of the host, and of waits: CLOCK_MONOTONIC in nanoseconds. Any thread.
#pragma once

#include <chrono>
#include <cstdint>

namespace xpud::drivers {

inline uint64_t NowNs() {
  return static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
}

// The end of a wait of `timeout_ns`; UINT64_MAX when it never ends.
inline uint64_t DeadlineAfter(uint64_t timeout_ns) {
  const uint64_t now = NowNs();
  return timeout_ns > UINT64_MAX - now ? UINT64_MAX : now + timeout_ns;
}

}  // namespace xpud::drivers
