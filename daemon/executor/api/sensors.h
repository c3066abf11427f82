// Readings of a device's sensors. Values.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace xpud::executor {

enum class Sensor : size_t {
  kTemperature,      // thousandths of a degree Celsius
  kEnergy,           // microjoules since some point in the past
  kMemorySize,       // bytes
  kMemoryFree,       // free memory of the whole device, whoever uses the rest
  kFrequency,        // kilohertz, of the compute units
  kThrottleReasons,  // ZES_FREQ_THROTTLE_REASON_FLAG_*
};
inline constexpr size_t kSensors = 6;

enum class SensorState : uint64_t {
  kMeasured,
  kNotOffered,    // the device has no such sensor, or its driver does not expose it
  kNotPermitted,  // this user may not read it
  kFailed,
  kNoExecutor,  // the executor process is being replaced
  kNoAnswer,    // the executor did not answer in time
};

struct SensorReading {
  SensorState state = SensorState::kNotOffered;
  uint64_t value = 0;
};

struct SensorReadings {
  uint64_t time_ns = 0;
  std::array<SensorReading, kSensors> readings = {};
  const SensorReading& operator[](Sensor sensor) const { return readings[static_cast<size_t>(sensor)]; }
  SensorReading& operator[](Sensor sensor) { return readings[static_cast<size_t>(sensor)]; }
};

inline SensorReadings NoReadings(SensorState why) {
  SensorReadings none;
  none.readings.fill({why, 0});
  return none;
}

}  // namespace xpud::executor
