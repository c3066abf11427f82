// How long a waiting thread spins before it sleeps. To be woken takes tens of microseconds, so where a
// machine has cores to spare, which the CPU device leaves it none of, a thread whose waits have been short of
// late spins for as long as those took. Any thread.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

#include "proto/transport/futex.h"

namespace xpud::transport {

// Between two looks of a thread that has spun for so long. Soon it gives its core to whoever wants it at each
// look: a program whose threads wait for one another (OpenMP's) is otherwise held up for as long as we spin.
// Before that it pauses for about `relaxes` times 50 ns.
inline void PauseAfter(std::chrono::nanoseconds spun, int relaxes) {
  if (spun > std::chrono::microseconds(20)) {
    std::this_thread::yield();
    return;
  }
  for (int i = 0; i < relaxes; ++i) CpuRelax();
}

class Patience {
 public:
  using Duration = std::chrono::nanoseconds;

  // `least`: to be spun in any case. `cores_to_spare`: whether the waiting is for a device that works on its
  // own.
  Patience(Duration least, bool cores_to_spare) : least_(least), may_spin_(cores_to_spare && kHasCores) {}

  Duration Limit() const {
    return may_spin_ && short_waits_.load(std::memory_order_relaxed) >= kEnough ? std::max(least_, kMost)
                                                                                : least_;
  }
  // A wait has ended that took so long, asleep or not.
  void Waited(Duration time) {
    const int so_far = short_waits_.load(std::memory_order_relaxed);
    const int now = time <= kMost ? std::min(so_far + 1, kRemembered) : std::max(so_far - 1, 0);
    if (now != so_far) short_waits_.store(now, std::memory_order_relaxed);
  }

 private:
  static constexpr Duration kMost = std::chrono::milliseconds(8);
  static constexpr unsigned kCores = 8;
  static constexpr int kEnough = 2, kRemembered = 4;
  static inline const bool kHasCores = std::thread::hardware_concurrency() >= kCores;

  const Duration least_;
  const bool may_spin_;
  std::atomic<int> short_waits_{0};
};

}  // namespace xpud::transport
