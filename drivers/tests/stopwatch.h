// For tests: the time since construction.
#pragma once

#include <chrono>

namespace xpud::drivers {

class Stopwatch {
 public:
  double Us() const { return std::chrono::duration<double, std::micro>(Clock::now() - start_).count(); }
  double Ms() const { return Us() / 1000; }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point start_ = Clock::now();
};

}  // namespace xpud::drivers
