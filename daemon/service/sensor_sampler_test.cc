#include "daemon/service/sensor_sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proto/control/xpud.pb.h"

namespace xpud::service {
namespace {

using executor::Sensor;
using executor::SensorReadings;
using executor::SensorState;
using ::testing::DoubleEq;
using ::testing::Optional;

constexpr uint64_t kSecond = 1'000'000'000;

SensorReadings Energy(uint64_t time_ns, uint64_t microjoules) {
  SensorReadings readings;
  readings.time_ns = time_ns;
  readings[Sensor::kEnergy] = {SensorState::kMeasured, microjoules};
  return readings;
}

TEST(SensorSampler, PowerIsEnergyOverTime) {
  EXPECT_THAT(Watts(Energy(kSecond, 1'000'000), Energy(3 * kSecond, 601'000'000)), Optional(DoubleEq(300)));
  EXPECT_EQ(Watts(Energy(kSecond, 5), Energy(2 * kSecond, 4)), std::nullopt) << "the counter began anew";
  EXPECT_EQ(Watts(Energy(kSecond, 5), Energy(kSecond, 6)), std::nullopt);
  EXPECT_EQ(Watts(SensorReadings{}, Energy(kSecond, 6)), std::nullopt);
}

TEST(SensorSampler, WhatIsMeasuredIsThereAndWhatIsNotSaysWhy) {
  SensorSample sample = {Energy(kSecond, 42), 1.5};
  sample.readings[Sensor::kTemperature] = {SensorState::kMeasured, 48'500};
  sample.readings[Sensor::kFrequency] = {SensorState::kMeasured, 1'980'000};
  sample.readings[Sensor::kThrottleReasons] = {SensorState::kMeasured, 0b1001};
  sample.readings[Sensor::kMemoryFree] = {SensorState::kNoAnswer, 17};
  v1::Device device;
  Fill(sample, device);
  EXPECT_EQ(device.temperature_celsius(), 48.5);
  EXPECT_EQ(device.power_watts(), 1.5);
  EXPECT_EQ(device.energy_microjoules(), 42u);
  EXPECT_EQ(device.frequency_mhz(), 1980);
  EXPECT_EQ(device.throttle_reasons(), "average_power_cap,thermal");
  EXPECT_FALSE(device.has_memory_free_bytes());
  ASSERT_EQ(device.unmeasured_size(), 1);
  EXPECT_EQ(device.unmeasured(0).field(), "memory_free_bytes");
  EXPECT_THAT(device.unmeasured(0).why(), testing::HasSubstr("did not answer in time"));
}

TEST(SensorSampler, NothingIsThereOfADeviceThatIsBeingReplaced) {
  v1::Device device;
  Fill({executor::NoReadings(SensorState::kNoExecutor), std::nullopt}, device);
  EXPECT_EQ(device.unmeasured_size(), 6);
  EXPECT_FALSE(device.has_temperature_celsius() || device.has_power_watts() || device.has_throttle_reasons());
}

}  // namespace
}  // namespace xpud::service
