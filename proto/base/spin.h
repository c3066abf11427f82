// How long a thread spins before it sleeps, by its role. Waking a thread takes tens of microseconds, so a
// thread that is likely to be needed again soon spins first. With fewer than four cores, most roles sleep at
// once. Thread-safe.
#pragma once

#include <sched.h>

#include <chrono>

namespace xpud {

// The number of cores that this process may use.
inline int UsableCores() {
  static const int cores = [] {
    cpu_set_t set;
    // Fails only if the machine may have more cores than the set holds.
    return sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : CPU_SETSIZE;
  }();
  return cores;
}

inline bool HasFewCores() { return UsableCores() < 4; }

class SpinTime {
 public:
  using Clock = std::chrono::steady_clock;

  // The durations with at least four cores, and with fewer.
  constexpr SpinTime(std::chrono::microseconds many_cores, std::chrono::microseconds few_cores)
      : many_cores_(many_cores), few_cores_(few_cores) {}

  Clock::duration get() const { return HasFewCores() ? few_cores_ : many_cores_; }
  // Whether a thread that has spun since `start` continues.
  bool Continues(Clock::time_point start, Clock::time_point now) const { return now - start < get(); }

 private:
  std::chrono::microseconds many_cores_, few_cores_;
};

namespace spin {

using std::chrono::microseconds;
// A client that waits for a daemon whose devices run on this machine's cores. With few cores it would take
// one from a worker: 120 us instead of 5 to 30 for a small operation and a wait, on two.
inline constexpr SpinTime kClientOfCpu{microseconds(50), microseconds(10)};
// A client that waits for an asynchronous device.
inline constexpr SpinTime kClientOfGpu{microseconds(1000), microseconds(50)};
// A lane after the last command: of a CPU device, and of a GPU.
inline constexpr SpinTime kLane{microseconds(60), microseconds(60)};
inline constexpr SpinTime kGpuLane{microseconds(4000), microseconds(60)};
// A lane while its device works. A device wakes no thread, so afterwards the lane sleeps for short times
// between polls.
inline constexpr SpinTime kDeviceWatch{microseconds(2000), microseconds(200)};
// A thread of an executor process, after the last message: as long as the lane that feeds it.
inline constexpr SpinTime kExecutor{microseconds(4000), microseconds(100)};
// A thread that relays a remote session. With few cores the session's other threads need this one.
inline constexpr SpinTime kRelay{microseconds(50), microseconds(0)};

}  // namespace spin
}  // namespace xpud
