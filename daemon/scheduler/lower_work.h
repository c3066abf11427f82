// How long work of a class waited for work of lower classes, on a device that does one thing after the other.
// REQUIRES: the lane's thread.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "daemon/tenant/time_grant.h"

namespace xpud::scheduler {

class LowerWork {
 public:
  // Work of the class ran. Called in order of time.
  void Ran(PriorityClass of, uint64_t began_ns, uint64_t ended_ns) {
    slices_[next_++ % kSlices] = {of, began_ns, ended_ns};
  }
  // How long work of classes below `of` ran between the two times, as far as that is remembered.
  uint64_t Within(PriorityClass of, uint64_t from_ns, uint64_t to_ns) const {
    uint64_t total = 0;
    for (const Slice& slice : slices_) {
      if (slice.of <= of || slice.ended_ns <= from_ns || slice.began_ns >= to_ns) continue;
      total += std::min(slice.ended_ns, to_ns) - std::max(slice.began_ns, from_ns);
    }
    return total;
  }

 private:
  static constexpr size_t kSlices = 16;
  struct Slice {
    PriorityClass of = PriorityClass::kRealtime;
    uint64_t began_ns = 0, ended_ns = 0;
  };

  std::array<Slice, kSlices> slices_;
  size_t next_ = 0;
};

}  // namespace xpud::scheduler
