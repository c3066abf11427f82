// What readers (status, metrics, profiles, flight recorders) may take of a lane: one hundredth of its time,
// so that no reader holds up the device. Their visits are short; after one, the next begins only when that
// many times its length has passed. Not thread-safe.
#pragma once

#include <algorithm>
#include <cstdint>

namespace xpud::lane {

class ReaderBudget {
 public:
  // The part of the lane's time.
  static constexpr uint64_t kPart = 100;

  // When the next visit may begin.
  uint64_t due_ns() const { return due_ns_; }
  // A visit took the lane from `began` to `ended`.
  void Spend(uint64_t began, uint64_t ended) {
    const uint64_t taken = kWakeNs + std::min(ended - std::min(began, ended), kMaxCountedNs);
    due_ns_ = ended + (kPart - 1) * taken;
  }

 private:
  // What a visit costs the lane and its clients beside its own length: threads are woken and lose their
  // cores. Measured on two cores, where a client's round trip takes that much longer when a visit meets it.
  static constexpr uint64_t kWakeNs = 25'000;
  // A thread may lose its core during a visit, which is not the visit's cost.
  static constexpr uint64_t kMaxCountedNs = 2'000'000;

  uint64_t due_ns_ = 0;
};

}  // namespace xpud::lane
