// When to ask the kernel whether the daemon still lives, for code that runs more often than is worth a system
// call. Thread-safe.
#pragma once

#include <ctime>

#include <atomic>
#include <cstdint>

namespace xpud::client {

// Returns true for one caller in 20 ms. `next` starts with 0. Costs some nanoseconds.
inline bool IsTimeToLook(std::atomic<int64_t>& next) {
  constexpr int64_t kPeriodNs = 20'000'000;
  timespec now;
  clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  const int64_t ns = now.tv_sec * int64_t{1'000'000'000} + now.tv_nsec;
  int64_t due = next.load(std::memory_order_relaxed);
  return ns >= due && next.compare_exchange_strong(due, ns + kPeriodNs, std::memory_order_relaxed);
}

}  // namespace xpud::client
