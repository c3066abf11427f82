#include "daemon/executor/level_zero/level_zero_sensors.h"

#include <level_zero/zes_api.h>

#include <cmath>
#include <vector>

#include "proto/base/clock.h"

namespace xpud::executor {
namespace {

SensorState StateOf(ze_result_t result) {
  switch (result) {
    case ZE_RESULT_SUCCESS:
      return SensorState::kMeasured;
    case ZE_RESULT_ERROR_UNSUPPORTED_FEATURE:
    case ZE_RESULT_ERROR_UNINITIALIZED:  // a driver without sysman
      return SensorState::kNotOffered;
    case ZE_RESULT_ERROR_INSUFFICIENT_PERMISSIONS:
      return SensorState::kNotPermitted;
    default:
      return SensorState::kFailed;
  }
}

// Returns the first handle of a kind. Those of the whole device come first.
template <typename Handle>
ze_result_t First(ze_result_t (*enumerate)(zes_device_handle_t, uint32_t*, Handle*),
                  zes_device_handle_t device, Handle& out) {
  uint32_t count = 1;
  const ze_result_t result = enumerate(device, &count, &out);
  if (result != ZE_RESULT_SUCCESS) return result;
  return count == 0 ? ZE_RESULT_ERROR_UNSUPPORTED_FEATURE : ZE_RESULT_SUCCESS;
}

uint64_t Thousandths(double value) { return static_cast<uint64_t>(std::llround(std::fmax(value, 0) * 1000)); }

void ReadTemperature(zes_device_handle_t device, SensorReadings& out) {
  zes_temp_handle_t sensor = nullptr;
  double celsius = 0;
  ze_result_t result = First(zesDeviceEnumTemperatureSensors, device, sensor);
  if (result == ZE_RESULT_SUCCESS) result = zesTemperatureGetState(sensor, &celsius);
  out[Sensor::kTemperature] = {StateOf(result), Thousandths(celsius)};
}

void ReadEnergy(zes_device_handle_t device, SensorReadings& out) {
  zes_pwr_handle_t domain = nullptr;
  zes_power_energy_counter_t counter = {};
  ze_result_t result = First(zesDeviceEnumPowerDomains, device, domain);
  if (result == ZE_RESULT_SUCCESS) result = zesPowerGetEnergyCounter(domain, &counter);
  out[Sensor::kEnergy] = {StateOf(result), counter.energy};
}

void ReadMemory(zes_device_handle_t device, SensorReadings& out) {
  zes_mem_handle_t memory = nullptr;
  zes_mem_state_t state = {};
  state.stype = ZES_STRUCTURE_TYPE_MEM_STATE;
  ze_result_t result = First(zesDeviceEnumMemoryModules, device, memory);
  if (result == ZE_RESULT_SUCCESS) result = zesMemoryGetState(memory, &state);
  out[Sensor::kMemorySize] = {StateOf(result), state.size};
  out[Sensor::kMemoryFree] = {StateOf(result), state.free};
}

void ReadFrequency(zes_device_handle_t device, SensorReadings& out) {
  zes_freq_handle_t domain = nullptr;
  zes_freq_state_t state = {};
  state.stype = ZES_STRUCTURE_TYPE_FREQ_STATE;
  ze_result_t result = First(zesDeviceEnumFrequencyDomains, device, domain);
  if (result == ZE_RESULT_SUCCESS) result = zesFrequencyGetState(domain, &state);
  out[Sensor::kFrequency] = {StateOf(result), Thousandths(state.actual)};
  out[Sensor::kThrottleReasons] = {StateOf(result), state.throttleReasons};
}

}  // namespace

SensorReadings ReadLevelZeroSensors(ze_device_handle_t device, bool says_why) {
  const auto handle = reinterpret_cast<zes_device_handle_t>(device);
  SensorReadings out;
  ReadTemperature(handle, out);
  ReadEnergy(handle, out);
  ReadMemory(handle, out);
  ReadFrequency(handle, out);
  if (!says_why) out[Sensor::kThrottleReasons] = {};
  out.time_ns = NowNs();
  return out;
}

}  // namespace xpud::executor
