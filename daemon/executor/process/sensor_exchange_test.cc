#include "daemon/executor/process/sensor_exchange.h"

#include <gtest/gtest.h>

#include <memory>
#include <thread>

namespace xpud::executor::process {
namespace {

using std::chrono::milliseconds;

// Zeroed, as new shared memory is.
struct Pages {
  SensorExchange exchange = {};
};

TEST(SensorExchange, EachQuestionGetsAnAnswerOfItsOwn) {
  static Pages pages;
  std::thread([] {
    uint64_t count = 0;
    pages.exchange.Serve([&] {
      SensorReadings readings;
      readings.time_ns = 7;
      readings[Sensor::kTemperature] = {SensorState::kMeasured, ++count};
      readings[Sensor::kEnergy] = {SensorState::kNotPermitted, 0};
      return readings;
    });
  }).detach();
  for (uint64_t question = 1; question <= 1000; ++question) {
    const SensorReadings readings = pages.exchange.Ask(milliseconds(10'000));
    ASSERT_EQ(readings[Sensor::kTemperature].state, SensorState::kMeasured);
    ASSERT_EQ(readings[Sensor::kTemperature].value, question);
    ASSERT_EQ(readings[Sensor::kEnergy].state, SensorState::kNotPermitted);
    ASSERT_EQ(readings[Sensor::kMemoryFree].state, SensorState::kNotOffered);
    ASSERT_EQ(readings.time_ns, 7u);
  }
}

TEST(SensorExchange, AnExecutorThatDoesNotAnswerIsNotWaitedFor) {
  Pages pages;
  const auto began = std::chrono::steady_clock::now();
  const SensorReadings readings = pages.exchange.Ask(milliseconds(30));
  EXPECT_EQ(readings[Sensor::kTemperature].state, SensorState::kNoAnswer);
  EXPECT_LT(std::chrono::steady_clock::now() - began, milliseconds(5000));
}

TEST(SensorExchange, AStateThatThereIsNotIsNoMeasurement) {
  static Pages pages;
  std::thread([] {
    pages.exchange.Serve([] { return NoReadings(static_cast<SensorState>(UINT64_MAX)); });
  }).detach();
  EXPECT_EQ(pages.exchange.Ask(milliseconds(10'000))[Sensor::kEnergy].state, SensorState::kFailed);
}

}  // namespace
}  // namespace xpud::executor::process
