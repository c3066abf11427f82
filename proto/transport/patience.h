// How long a waiting thread spins before it sleeps. To be woken takes tens of microseconds, so where a
// machine has cores to spare, which the CPU device leaves it none of, a thread whose waits have been short of
// late spins for as long as those took. Any thread.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

namespace xpud::transport {

// Whether more threads of this machine want to run than it has cores. Costs a few us.
bool IsCrowded();

class Patience {
 public:
  using Clock = std::chrono::steady_clock;
  using Duration = Clock::duration;

  // `least`: to be spun in any case. `cores_to_spare`: whether the waiting is for a device that works on its
  // own.
  Patience(Duration least, bool cores_to_spare) : least_(least), may_spin_(cores_to_spare && kHasCores) {}

  // `least` of a thread that waits for other threads of this machine, as all that a remote session passes
  // through do: where cores are few, those need this one.
  static Duration LeastBesideOthers(Duration least) { return kCoresForAll ? least : Duration::zero(); }
  static bool HasCoresForAll() { return kCoresForAll; }

  // Whether a thread that has spun since `start` goes on. Not for long where others want the cores: a program
  // whose threads wait for one another (OpenMP's) would be held up for as long as we spin.
  bool GoesOn(Clock::time_point start, Clock::time_point now) {
    const Duration spun = now - start;
    if (spun < least_) return true;
    if (!may_spin_ || spun >= kMost || short_waits_.load(std::memory_order_relaxed) < kEnough) return false;
    if (now.time_since_epoch() >= next_look_.load(std::memory_order_relaxed)) {
      const bool crowded = IsCrowded();
      next_look_.store(now.time_since_epoch() + (crowded ? kCrowded : kLook), std::memory_order_relaxed);
      crowded_.store(crowded, std::memory_order_relaxed);
    }
    return !crowded();
  }
  // Whether it was, when last looked at.
  bool crowded() const { return crowded_.load(std::memory_order_relaxed); }
  // A wait has ended that took so long, asleep or not.
  void Waited(Duration time) {
    const int so_far = short_waits_.load(std::memory_order_relaxed);
    const int now = time <= kMost ? std::min(so_far + 1, kRemembered) : std::max(so_far - 1, 0);
    if (now != so_far) short_waits_.store(now, std::memory_order_relaxed);
  }

 private:
  static constexpr Duration kMost = std::chrono::milliseconds(8);
  static constexpr Duration kLook = std::chrono::microseconds(250);    // between two looks at the machine
  static constexpr Duration kCrowded = std::chrono::milliseconds(50);  // so long it is taken to stay so
  static constexpr unsigned kCores = 8;
  static constexpr int kEnough = 2, kRemembered = 4;
  static inline const bool kHasCores = std::thread::hardware_concurrency() >= kCores;
  static inline const bool kCoresForAll = std::thread::hardware_concurrency() >= 4;

  const Duration least_;
  const bool may_spin_;
  std::atomic<int> short_waits_{0};
  std::atomic<Duration> next_look_{Duration::zero()};
  std::atomic<bool> crowded_{false};
};

}  // namespace xpud::transport
