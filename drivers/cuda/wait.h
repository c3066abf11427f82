// Waits for a device by polling, so that a device that is lost meanwhile is noticed. Thread-safe.
#pragma once

#include <level_zero/ze_api.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "drivers/frontend/clock.h"

namespace xpud::drivers::cuda {

// How long a waiter spins before it sleeps, and the longest sleep.
constexpr uint64_t kSpinNs = 50'000;
constexpr uint64_t kMaxSleepNs = 100'000;

// Calls `poll()` until it returns something other than NOT_READY or the time runs out.
template <typename Poll>
ze_result_t WaitUntil(uint64_t timeout_ns, Poll&& poll) {
  ze_result_t result = poll();
  if (result != ZE_RESULT_NOT_READY || timeout_ns == 0) return result;
  const uint64_t start = NowNs();
  const uint64_t deadline = DeadlineAfter(timeout_ns);
  uint64_t sleep = 5'000;
  for (uint64_t now = start; result == ZE_RESULT_NOT_READY && now < deadline; now = NowNs()) {
    if (now - start >= kSpinNs) {
      std::this_thread::sleep_for(std::chrono::nanoseconds(std::min(sleep, deadline - now)));
      sleep = std::min(2 * sleep, kMaxSleepNs);
    }
    result = poll();
  }
  return result;
}

}  // namespace xpud::drivers::cuda
