// Interface of a device's sensors, for sysman's memory, power, temperature and frequency entries. Owned by
// the device. Thread-safe.
#pragma once

#include <level_zero/zes_api.h>

#include <cstdint>

namespace xpud::drivers {

class Sensors {
 public:
  virtual ~Sensors() = default;

  // Bytes of the whole device, whoever uses them.
  virtual ze_result_t ReadMemory(uint64_t& size, uint64_t& free) const = 0;
  // Energy since some fixed point in the past.
  virtual ze_result_t ReadEnergy(uint64_t& microjoules) const = 0;
  virtual ze_result_t ReadTemperature(double& celsius) const = 0;
  // Current frequency of the cores, and the reasons that limit it.
  virtual ze_result_t ReadFrequency(double& megahertz, zes_freq_throttle_reason_flags_t& reasons) const = 0;
};

}  // namespace xpud::drivers
