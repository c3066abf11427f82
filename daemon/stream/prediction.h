// How long work takes on an asynchronous device, by its cost at the device's peak rates and by what such work
// took before. Only work that ran without other sessions' teaches: behind their work, it would seem long. A
// value. REQUIRES: the lane's thread.
#pragma once

#include <algorithm>
#include <cstdint>

#include "daemon/executor/api/peak_rates.h"

namespace xpud::stream {

// How much longer than at the peak rates work took, over a while.
class Slowness {
 public:
  // `weight`: how much it teaches, from 0 to 1.
  void Learn(double ideal_ns, double took_ns, double weight) {
    ideal_ns_ += ideal_ns * weight;
    took_ns_ += took_ns * weight;
    if (ideal_ns_ < kMaxNs) return;
    ideal_ns_ /= 2;  // what is old counts less and less
    took_ns_ /= 2;
  }
  // As if `usual` had been found for `usual_ns` before.
  double Factor(double usual, double usual_ns) const {
    return (usual * usual_ns + took_ns_) / (usual_ns + ideal_ns_);
  }

 private:
  static constexpr double kMaxNs = 8e9;
  double ideal_ns_ = 0, took_ns_ = 0;
};

class Prediction {
 public:
  static constexpr double kLaunchNs = 2'000;  // what the smallest command takes

  // `usual`: of all sessions of the device.
  Prediction(const executor::PeakRates& peak, Slowness& usual)
      : byte_ns_(1e9 / Known(peak.memory_bytes, 1e10)),
        float_ns_(1e9 / Known(peak.float_operations, 1e11)),
        half_ns_(1e9 / Known(peak.half_operations, peak.float_operations == 0
                                                       ? 1e11
                                                       : 2.0 * static_cast<double>(peak.float_operations))),
        usual_(usual) {}

  // By the peak rates, uncorrected. `half`: operations on float16 or bfloat16.
  double Ideal(double bytes, double operations, bool half) const {
    return kLaunchNs + std::max(bytes * byte_ns_, operations * (half ? half_ns_ : float_ns_));
  }
  // By what the session's work took lately: for what may be in flight.
  uint64_t Corrected(double ideal_ns) const { return static_cast<uint64_t>(ideal_ns * factor_); }
  // For what sessions are charged beside each other. It changes slowly, and the work of a session that hardly
  // ever ran alone counts as usual: programs that are equal are charged alike, whoever runs alone more often.
  uint64_t Fair(double ideal_ns) const {
    return static_cast<uint64_t>(ideal_ns * own_.Factor(usual_.Factor(kFirstFactor, 1e6), kUsualNs));
  }
  // Work of `ideal_ns` took this long, and ran without others'. Short work teaches little: it takes as long
  // as its end takes to be seen.
  void Learn(double ideal_ns, uint64_t took_ns) {
    const auto took = static_cast<double>(took_ns);
    const double found = std::clamp(took / ideal_ns, 1 / kMaxFactor, kMaxFactor);
    const double weight = std::min(1.0, took / kTellingNs);
    factor_ += (found - factor_) / 8 * weight;
    own_.Learn(ideal_ns, found * ideal_ns, weight);
    usual_.Learn(ideal_ns, found * ideal_ns, weight);
  }

 private:
  static constexpr double kTellingNs = 1e6;
  static constexpr double kMaxFactor = 100;
  static constexpr double kFirstFactor = 2;  // few programs reach half of the peak
  static constexpr double kUsualNs = 5e8;

  static double Known(uint64_t rate, double fallback) {
    return rate == 0 ? fallback : static_cast<double>(rate);
  }

  double byte_ns_, float_ns_, half_ns_;
  double factor_ = kFirstFactor;
  Slowness own_;
  Slowness& usual_;
};

}  // namespace xpud::stream
