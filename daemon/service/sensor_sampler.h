// Caches the readings of the devices' sensors: a device is read at most twice a second, and only on demand.
// Thread-safe.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "daemon/executor/api/device.h"
#include "daemon/executor/api/sensors.h"
#include "daemon/lane/lanes.h"
#include "proto/base/mutex.h"

namespace xpud::v1 {
class Device;
}

namespace xpud::service {

struct SensorSample {
  executor::SensorReadings readings;
  std::optional<double> watts;  // mean since an earlier sample; unset if energy is not measured
};

class SensorSampler {
 public:
  // The devices must outlive the sampler.
  explicit SensorSampler(std::vector<executor::Device*> devices) : devices_(devices.size()) {
    for (size_t d = 0; d < devices.size(); ++d) devices_[d].device = devices[d];
  }
  // Returns a sample for each device. Blocks while the devices are read, usually for milliseconds. If there
  // is no recent sample, power needs two readings, a tenth of a second apart.
  std::vector<SensorSample> Take();
  // Reads what each device has free now, whoever uses the rest; nullopt: it does not say.
  std::vector<std::optional<uint64_t>> ReadFreeMemory();

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

// Returns nullopt if energy is missing, the counter restarted between the two, or no time passed.
std::optional<double> Watts(const executor::SensorReadings& before, const executor::SensorReadings& now);

// The devices of all lanes, in their order. REQUIRES: not a lane's thread.
std::vector<executor::Device*> DevicesOf(lane::Lanes& lanes);

void Fill(const SensorSample& sample, v1::Device& out);

}  // namespace xpud::service
