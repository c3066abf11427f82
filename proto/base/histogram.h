// Counts durations by their length, in classes that grow by powers of four, as Prometheus's classic
// histograms do. Costs a few nanoseconds. A plain value.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace xpud {

class Histogram {
 public:
  static constexpr size_t kBounds = 14;
  // The longest duration of class `i`, in nanoseconds: 1 us, 4 us, 16 us, .. 67 s. One more class has the
  // rest.
  static constexpr uint64_t BoundNs(size_t i) { return uint64_t{1000} << (2 * i); }

  // `count` durations of `ns` each.
  void Add(uint64_t ns, uint64_t count = 1) {
    counts_[ClassOf(ns)] += count;
    sum_ns_ += ns * count;
  }
  Histogram& operator+=(const Histogram& other) {
    for (size_t i = 0; i <= kBounds; ++i) counts_[i] += other.counts_[i];
    sum_ns_ += other.sum_ns_;
    return *this;
  }
  const std::array<uint64_t, kBounds + 1>& counts() const { return counts_; }
  uint64_t sum_ns() const { return sum_ns_; }

 private:
  static constexpr size_t ClassOf(uint64_t ns) {
    if (ns <= BoundNs(0)) return 0;
    const auto at = static_cast<size_t>(std::bit_width((ns - 1) / 1000) + 1) / 2;
    return at < kBounds ? at : kBounds;
  }

  std::array<uint64_t, kBounds + 1> counts_{};
  uint64_t sum_ns_ = 0;
};

}  // namespace xpud
