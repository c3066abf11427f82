// Which class of tenants goes first on a device: the highest one with work, but each class with work gets at
// least a small part of the time, so that none starves. A class has work while one of its tenants has
// commands that may run, or keeps an asynchronous device busy. REQUIRES: the lane's thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "daemon/scheduler/guarantee.h"
#include "daemon/tenant/time_grant.h"

namespace xpud::scheduler {

class ClassOrder {
 public:
  static constexpr size_t kClasses = 3;
  static constexpr uint64_t kActiveForNs = 50'000'000;  // after its last work, a class may be back any moment

  // `least`: the part of each class with work, in hundredths of a per cent.
  explicit ClassOrder(uint32_t least) {
    for (State& state : classes_) state.least.Set(least, /*extra_ns=*/0);
  }

  // A tenant of the class has commands that may run, or no longer.
  void Wants(PriorityClass of, bool wants) { classes_[Index(of)].wanting += wants ? 1 : -1; }
  // What the class has on an asynchronous device. `works`: something that goes on; `keeps_busy`: it leaves
  // the device no time.
  void SetOnDevice(PriorityClass of, bool works, bool keeps_busy) {
    classes_[Index(of)].works = works;
    classes_[Index(of)].keeps_busy = keeps_busy;
  }
  // Called once for each round, after all that.
  void BeginRound(uint64_t now_ns) {
    due_ = kClasses;
    for (size_t i = kClasses; i-- > 0;) {
      State& state = classes_[i];
      const bool has_work = state.wanting != 0 || state.works;
      state.least.Accrue(now_ns, has_work);
      if (has_work) state.active_ns = now_ns;
      if (has_work && state.least.due()) due_ = i;
    }
  }
  // The class used the device.
  void Use(PriorityClass of, uint64_t ns) { classes_[Index(of)].least.Use(ns); }

  // Whether tenants of the class may run now.
  bool MayRun(PriorityClass of) const {
    const size_t index = Index(of);
    if (due_ != kClasses) return due_ == index;
    for (size_t i = 0; i < index; ++i)
      if (classes_[i].wanting != 0 || classes_[i].keeps_busy) return false;
    return true;
  }
  // Whether a higher class had work lately.
  bool HigherIsActive(PriorityClass of, uint64_t now_ns) const {
    for (size_t i = 0; i < Index(of); ++i)
      if (classes_[i].active_ns != 0 && now_ns - classes_[i].active_ns < kActiveForNs) return true;
    return false;
  }

  static constexpr size_t Index(PriorityClass of) { return static_cast<size_t>(of); }

 private:
  struct State {
    int wanting = 0;  // tenants
    bool works = false, keeps_busy = false;
    uint64_t active_ns = 0;
    Guarantee least;
  };

  std::array<State, kClasses> classes_;  // the highest first
  size_t due_ = kClasses;                // the class that goes first because it had less than its part
};

}  // namespace xpud::scheduler
