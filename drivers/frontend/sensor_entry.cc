#include "drivers/frontend/sensor_entry.h"

#include <map>
#include <memory>

#include "drivers/frontend/clock.h"
#include "drivers/frontend/driver.h"
#include "drivers/frontend/entry.h"
#include "drivers/frontend/handle_table.h"
#include "drivers/frontend/sensors.h"
#include "proto/base/mutex.h"

namespace xpud::drivers {
namespace {

// The handle of one sensor of one device. Created when first requested, and never destroyed, like the device.
template <typename H, Kind kOwnKind>
class Sensor final : public Object {
 public:
  using Handle = H;
  static constexpr Kind kKind = kOwnKind;
  explicit Sensor(const Device& device) : Object(device.driver()), device_(device) {}
  const Sensors& sensors() const { return *device_.sensors(); }

 private:
  const Device& device_;
};

using MemoryModule = Sensor<zes_mem_handle_t, Kind::kMemoryModule>;
using PowerDomain = Sensor<zes_pwr_handle_t, Kind::kPowerDomain>;
using FrequencyDomain = Sensor<zes_freq_handle_t, Kind::kFrequencyDomain>;
using TemperatureSensor = Sensor<zes_temp_handle_t, Kind::kTemperatureSensor>;

template <typename S>
typename S::Handle HandleOf(const Device& device) {
  static Mutex& mutex = *new Mutex;
  static auto& handles = *new std::map<const Device*, typename S::Handle>;
  MutexLock lock(mutex);
  auto& handle = handles.try_emplace(&device).first->second;
  if (handle == nullptr) handle = HandleTable::Add(std::make_unique<S>(device));
  return handle;
}

Device* FindDevice(zes_device_handle_t handle) {
  return HandleTable::Find<Device>(reinterpret_cast<ze_device_handle_t>(handle));
}

// A device has one of each sensor, or none at all.
template <typename S>
ze_result_t Enumerate(zes_device_handle_t handle, uint32_t* count, typename S::Handle* out) {
  const Device* const device = FindDevice(handle);
  XPUD_REQUIRE(device != nullptr, ZE_RESULT_ERROR_INVALID_ARGUMENT);
  XPUD_NOT_NULL(count);
  XPUD_REQUIRE(device->sensors() != nullptr, ZE_RESULT_ERROR_UNSUPPORTED_FEATURE);
  return Guard([&]() -> ze_result_t {
    const typename S::Handle one[] = {HandleOf<S>(*device)};
    XPUD_REQUIRE(one[0] != nullptr, ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY);
    return Answer(one, count, out, [](auto& to, auto from) { to = from; });
  });
}

ze_result_t MemoryGetProperties(zes_mem_handle_t handle, zes_mem_properties_t* properties) {
  XPUD_FIND(MemoryModule, module, handle);
  XPUD_NOT_NULL(properties);
  zes_mem_properties_t value{};
  value.type = ZES_MEM_TYPE_HBM;
  value.location = ZES_MEM_LOC_DEVICE;
  value.busWidth = value.numChannels = -1;  // unknown
  uint64_t free = 0;
  const ze_result_t result = module.sensors().ReadMemory(value.physicalSize, free);
  if (result == ZE_RESULT_SUCCESS) AssignKeepingChain(*properties, value);
  return result;
}

ze_result_t MemoryGetState(zes_mem_handle_t handle, zes_mem_state_t* state) {
  XPUD_FIND(MemoryModule, module, handle);
  XPUD_NOT_NULL(state);
  state->health = ZES_MEM_HEALTH_UNKNOWN;
  return module.sensors().ReadMemory(state->size, state->free);
}

ze_result_t PowerGetProperties(zes_pwr_handle_t handle, zes_power_properties_t* properties) {
  XPUD_FIND(PowerDomain, domain, handle);
  XPUD_NOT_NULL(properties);
  static_cast<void>(domain);
  zes_power_properties_t value{};
  value.defaultLimit = value.minLimit = value.maxLimit = -1;  // unknown
  AssignKeepingChain(*properties, value);
  return ZE_RESULT_SUCCESS;
}

ze_result_t PowerGetEnergyCounter(zes_pwr_handle_t handle, zes_power_energy_counter_t* counter) {
  XPUD_FIND(PowerDomain, domain, handle);
  XPUD_NOT_NULL(counter);
  counter->timestamp = NowNs() / 1000;
  return domain.sensors().ReadEnergy(counter->energy);
}

ze_result_t TemperatureGetProperties(zes_temp_handle_t handle, zes_temp_properties_t* properties) {
  XPUD_FIND(TemperatureSensor, sensor, handle);
  XPUD_NOT_NULL(properties);
  static_cast<void>(sensor);
  zes_temp_properties_t value{};
  value.type = ZES_TEMP_SENSORS_GPU;
  value.maxTemperature = -1;  // unknown
  AssignKeepingChain(*properties, value);
  return ZE_RESULT_SUCCESS;
}

ze_result_t TemperatureGetState(zes_temp_handle_t handle, double* celsius) {
  XPUD_FIND(TemperatureSensor, sensor, handle);
  XPUD_NOT_NULL(celsius);
  return sensor.sensors().ReadTemperature(*celsius);
}

ze_result_t FrequencyGetState(zes_freq_handle_t handle, zes_freq_state_t* state) {
  XPUD_FIND(FrequencyDomain, domain, handle);
  XPUD_NOT_NULL(state);
  zes_freq_state_t value{};
  value.currentVoltage = value.request = value.tdp = value.efficient = -1;  // unknown
  const ze_result_t result = domain.sensors().ReadFrequency(value.actual, value.throttleReasons);
  if (result == ZE_RESULT_SUCCESS) AssignKeepingChain(*state, value);
  return result;
}

}  // namespace

void PutSensors(const TableWriter& put, zes_device_dditable_t& table) {
  put.Put(table.pfnEnumMemoryModules, Enumerate<MemoryModule>);
  put.Put(table.pfnEnumPowerDomains, Enumerate<PowerDomain>);
  put.Put(table.pfnEnumTemperatureSensors, Enumerate<TemperatureSensor>);
  put.Put(table.pfnEnumFrequencyDomains, Enumerate<FrequencyDomain>);
}

void PutSensors(const TableWriter& put, zes_memory_dditable_t& table) {
  put.Put(table.pfnGetProperties, MemoryGetProperties);
  put.Put(table.pfnGetState, MemoryGetState);
}

void PutSensors(const TableWriter& put, zes_power_dditable_t& table) {
  put.Put(table.pfnGetProperties, PowerGetProperties);
  put.Put(table.pfnGetEnergyCounter, PowerGetEnergyCounter);
}

void PutSensors(const TableWriter& put, zes_temperature_dditable_t& table) {
  put.Put(table.pfnGetProperties, TemperatureGetProperties);
  put.Put(table.pfnGetState, TemperatureGetState);
}

void PutSensors(const TableWriter& put, zes_frequency_dditable_t& table) {
  put.Put(table.pfnGetState, FrequencyGetState);
}

}  // namespace xpud::drivers
