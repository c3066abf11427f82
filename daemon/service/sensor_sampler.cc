#include "daemon/service/sensor_sampler.h"

#include <string_view>
#include <thread>

#include "absl/strings/str_cat.h"
#include "proto/control/xpud.pb.h"

namespace xpud::service {
namespace {

using Clock = std::chrono::steady_clock;
using executor::Sensor;
using executor::SensorReading;
using executor::SensorReadings;
using executor::SensorState;

constexpr auto kFresh = std::chrono::milliseconds(500);
constexpr auto kForPower = std::chrono::milliseconds(100);
constexpr auto kOld = std::chrono::seconds(10);  // a mean over a longer time is stale

bool MeasuresEnergy(const SensorReadings& readings) {
  return readings[Sensor::kEnergy].state == SensorState::kMeasured;
}

// The names follow OpenTelemetry and Level Zero; the flags are ZES_FREQ_THROTTLE_REASON_FLAG_*.
std::string ThrottleText(uint64_t flags) {
  constexpr std::string_view kNames[] = {"average_power_cap", "burst_power_cap", "current_limit", "thermal",
                                         "power_supply",      "software",        "hardware"};
  std::string text;
  for (size_t bit = 0; bit < std::size(kNames); ++bit) {
    if ((flags >> bit & 1) != 0) absl::StrAppend(&text, text.empty() ? "" : ",", std::string(kNames[bit]));
  }
  return text;
}

const char* WhyOf(SensorState state) {
  switch (state) {
    case SensorState::kMeasured:
      return "";
    case SensorState::kNotOffered:
      return "the device has no such sensor, or its driver does not offer it";
    case SensorState::kNotPermitted:
      return "the daemon's user may not read it";
    case SensorState::kFailed:
      return "its driver could not read it";
    case SensorState::kNoExecutor:
      return "the device's executor process is being replaced";
    case SensorState::kNoAnswer:
      return "the device's executor process did not answer in time";
  }
  return "";
}

}  // namespace

std::optional<double> Watts(const SensorReadings& before, const SensorReadings& now) {
  const uint64_t from = before[Sensor::kEnergy].value, to = now[Sensor::kEnergy].value;
  if (!MeasuresEnergy(before) || !MeasuresEnergy(now) || to < from || now.time_ns <= before.time_ns)
    return std::nullopt;
  return static_cast<double>(to - from) * 1000 / static_cast<double>(now.time_ns - before.time_ns);
}

std::vector<SensorSample> SensorSampler::Take() {
  MutexLock lock(mutex_);
  std::vector<SensorSample> samples;
  for (Sampled& sampled : devices_) {
    if (!sampled.taken_once || Clock::now() - sampled.taken >= kFresh) Sample(sampled);
    samples.push_back(sampled.last);
  }
  return samples;
}

std::vector<std::optional<uint64_t>> SensorSampler::ReadFreeMemory() {
  MutexLock lock(mutex_);
  std::vector<std::optional<uint64_t>> free;
  for (const Sampled& sampled : devices_) {
    const SensorReading reading = sampled.device->ReadSensors()[Sensor::kMemoryFree];
    free.push_back(reading.state == SensorState::kMeasured ? std::optional(reading.value) : std::nullopt);
  }
  return free;
}

void SensorSampler::Sample(Sampled& sampled) {
  SensorReadings before = sampled.last.readings;
  SensorReadings now = sampled.device->ReadSensors();
  if (MeasuresEnergy(now) && (!MeasuresEnergy(before) || Clock::now() - sampled.taken >= kOld)) {
    before = now;
    std::this_thread::sleep_for(kForPower);
    now = sampled.device->ReadSensors();
  }
  sampled.last = {now, Watts(before, now)};
  sampled.taken = Clock::now();
  sampled.taken_once = true;
}

std::vector<executor::Device*> DevicesOf(lane::Lanes& lanes) {
  std::vector<executor::Device*> devices;
  lanes.CallEach([&](lane::Lane& lane) { devices.push_back(lane.state().device.get()); });
  return devices;
}

void Fill(const SensorSample& sample, v1::Device& out) {
  const auto put = [&](Sensor sensor, const char* field, auto set) {
    const SensorReading& reading = sample.readings[sensor];
    if (reading.state == SensorState::kMeasured) return set(reading.value);
    v1::Unmeasured& unmeasured = *out.add_unmeasured();
    unmeasured.set_field(field);
    unmeasured.set_why(WhyOf(reading.state));
  };
  put(Sensor::kTemperature, "temperature_celsius",
      [&](uint64_t value) { out.set_temperature_celsius(static_cast<double>(value) / 1000); });
  put(Sensor::kEnergy, "energy_microjoules", [&](uint64_t value) { out.set_energy_microjoules(value); });
  put(Sensor::kEnergy, "power_watts", [&](uint64_t) {
    if (sample.watts) out.set_power_watts(*sample.watts);
  });
  put(Sensor::kMemoryFree, "memory_free_bytes", [&](uint64_t value) { out.set_memory_free_bytes(value); });
  put(Sensor::kFrequency, "frequency_mhz",
      [&](uint64_t value) { out.set_frequency_mhz(static_cast<double>(value) / 1000); });
  put(Sensor::kThrottleReasons, "throttle_reasons",
      [&](uint64_t value) { out.set_throttle_reasons(ThrottleText(value)); });
}

}  // namespace xpud::service
