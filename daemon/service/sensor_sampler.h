// What devices' sensors say, for all who ask: a device is asked at most twice a second, and only while
// somebody wants to know. Any thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "daemon/executor/api/device.h"
#include "daemon/executor/api/sensors.h"
#include "proto/base/mutex.h"

namespace xpud::v1 {
class Device;
}

namespace xpud::service {

struct SensorSample {
  executor::SensorReadings readings;
  std::optional<double> watts;  // mean since an earlier sample; where energy is measured
};

class SensorSampler {
 public:
  // The devices outlive it.
  explicit SensorSampler(std::vector<executor::Device*> devices) : devices_(devices.size()) {
    for (size_t d = 0; d < devices.size(); ++d) devices_[d].device = devices[d];
  }
  // By device. Takes as long as the devices need, which is milliseconds; where power is wanted for the first
  // time in a while, a tenth of a second, as it is the difference of two.
  std::vector<SensorSample> Take();

 private:
  struct Sampled {
    executor::Device* device = nullptr;
    SensorSample last;
    std::chrono::steady_clock::time_point taken = {};
    bool taken_once = false;
  };
  static void Sample(Sampled& sampled);

  Mutex mutex_;
  std::vector<Sampled> devices_ ABSL_GUARDED_BY(mutex_);
};

// Nothing where one has no energy, the counter began anew between the two, or no time passed.
std::optional<double> Watts(const executor::SensorReadings& before, const executor::SensorReadings& now);

void Fill(const SensorSample& sample, v1::Device& out);

}  // namespace xpud::service
