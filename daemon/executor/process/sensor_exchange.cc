#include "daemon/executor/process/sensor_exchange.h"

#include <algorithm>

#include "proto/transport/futex.h"

namespace xpud::executor::process {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kLong = std::chrono::hours(1);

}  // namespace

SensorReadings SensorExchange::Ask(std::chrono::milliseconds limit) {
  const uint32_t question = asked_.fetch_add(1) + 1;
  transport::FutexWakeAll(asked_);
  const auto end = Clock::now() + limit;
  for (uint32_t answered = answered_.load(); answered != question; answered = answered_.load()) {
    const auto rest = end - Clock::now();
    if (rest <= rest.zero()) return NoReadings(SensorState::kNoAnswer);
    transport::FutexWait(answered_, answered, std::chrono::ceil<std::chrono::milliseconds>(rest));
  }
  SensorReadings out;
  out.time_ns = time_ns_.load();
  for (size_t i = 0; i < kSensors; ++i) {
    const uint64_t state = words_[i].state.load();  // written by the executor, which is not trusted
    out.readings[i] = {static_cast<SensorState>(std::min(state, static_cast<uint64_t>(SensorState::kFailed))),
                       words_[i].value.load()};
  }
  return out;
}

void SensorExchange::Serve(absl::FunctionRef<SensorReadings()> read) {
  for (uint32_t answered = 0;;) {
    const uint32_t asked = asked_.load();
    if (asked == answered) {
      transport::FutexWait(asked_, asked, kLong);
      continue;
    }
    const SensorReadings readings = read();
    time_ns_.store(readings.time_ns);
    for (size_t i = 0; i < kSensors; ++i) {
      words_[i].state.store(static_cast<uint64_t>(readings.readings[i].state));
      words_[i].value.store(readings.readings[i].value);
    }
    answered = asked;
    answered_.store(answered);
    transport::FutexWakeAll(answered_);
  }
}

}  // namespace xpud::executor::process
