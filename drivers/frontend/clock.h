// The clock of the host and of waits. Thread-safe.
#pragma once

#include <cstdint>

#include "proto/base/clock.h"

namespace xpud::drivers {

// Returns the end of a wait of `timeout_ns`; UINT64_MAX if it is unlimited.
inline uint64_t DeadlineAfter(uint64_t timeout_ns) {
  const uint64_t now = NowNs();
  return timeout_ns > UINT64_MAX - now ? UINT64_MAX : now + timeout_ns;
}

}  // namespace xpud::drivers
