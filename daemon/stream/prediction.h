// How long work takes on an asynchronous device, before it ran: its cost by the device's peak rates,
// corrected by what such work of the session took. Only work that ran without other sessions' corrects it:
// behind their work, it would seem long. A value. REQUIRES: the lane's thread.
#pragma once

#include <algorithm>
#include <cstdint>

#include "daemon/executor/api/peak_rates.h"

namespace xpud::stream {

class Prediction {
 public:
  static constexpr double kLaunchNs = 2'000;  // what the smallest command takes

  explicit Prediction(const executor::PeakRates& peak)
      : byte_ns_(1e9 / Known(peak.memory_bytes, 1e10)),
        float_ns_(1e9 / Known(peak.float_operations, 1e11)),
        half_ns_(1e9 / Known(peak.half_operations, peak.float_operations == 0
                                                       ? 1e11
                                                       : 2.0 * static_cast<double>(peak.float_operations))) {}

  // By the peak rates, uncorrected. `half`: operations on float16 or bfloat16.
  double Ideal(double bytes, double operations, bool half) const {
    return kLaunchNs + std::max(bytes * byte_ns_, operations * (half ? half_ns_ : float_ns_));
  }
  uint64_t Corrected(double ideal_ns) const { return static_cast<uint64_t>(ideal_ns * factor_); }
  // Work of `ideal_ns` took this long, and ran without others'. Short work teaches little: it takes as long
  // as its end takes to be seen.
  void Learn(double ideal_ns, uint64_t took_ns) {
    const auto took = static_cast<double>(took_ns);
    const double found = std::clamp(took / ideal_ns, 1 / kMaxFactor, kMaxFactor);
    factor_ += (found - factor_) / 8 * std::min(1.0, took / kTellingNs);
  }

 private:
  static constexpr double kTellingNs = 1e6;
  static constexpr double kMaxFactor = 100;

  static double Known(uint64_t rate, double fallback) {
    return rate == 0 ? fallback : static_cast<double>(rate);
  }

  double byte_ns_, float_ns_, half_ns_;
  double factor_ = 2;  // few programs reach half of the peak
};

}  // namespace xpud::stream
