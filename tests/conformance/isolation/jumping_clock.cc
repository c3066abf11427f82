// Preloaded into a process, makes its wall clock jump: by up to ten years to and fro at each reading.
// Monotonic clocks are unchanged.
#include <dlfcn.h>
#include <sys/time.h>
#include <time.h>

#include <atomic>

namespace {

constexpr long kTenYears = 10L * 365 * 24 * 3600;

long NextJump() {
  static std::atomic<unsigned> state{1};
  const unsigned next = state.load(std::memory_order_relaxed) * 1664525u + 1013904223u;
  state.store(next, std::memory_order_relaxed);
  return static_cast<long>(next % (2 * kTenYears)) - kTenYears;
}

template <typename Function>
Function Next(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

}  // namespace

extern "C" {

__attribute__((visibility("default"))) int clock_gettime(clockid_t clock, timespec* time) {
  static const auto next = Next<int (*)(clockid_t, timespec*)>("clock_gettime");
  const int result = next(clock, time);
  if (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE) time->tv_sec += NextJump();
  return result;
}

__attribute__((visibility("default"))) int gettimeofday(timeval* time, void* zone) {
  static const auto next = Next<int (*)(timeval*, void*)>("gettimeofday");
  const int result = next(time, zone);
  time->tv_sec += NextJump();
  return result;
}

__attribute__((visibility("default"))) time_t time(time_t* out) {
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (out != nullptr) *out = now.tv_sec;
  return now.tv_sec;
}

}  // extern "C"
