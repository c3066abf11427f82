// A few words in shared memory through which the daemon reads an executor's sensors. A thread of the executor
// sleeps until it is asked.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>

#include "absl/functional/function_ref.h"
#include "daemon/executor/api/sensors.h"

namespace xpud::executor::process {

class SensorExchange {
 public:
  // For the daemon, one thread at a time. Returns kNoAnswer if the executor does not answer within `limit`.
  SensorReadings Ask(std::chrono::milliseconds limit);
  // For the executor: answers each request with the result of `read`. Does not return.
  [[noreturn]] void Serve(absl::FunctionRef<SensorReadings()> read);

 private:
  // The daemon increments asked_; the executor increments answered_ when an answer is complete. A late answer
  // may be overwritten while it is read; single values are never torn.
  alignas(64) std::atomic<uint32_t> asked_;
  std::atomic<uint32_t> answered_;
  std::atomic<uint64_t> time_ns_;
  struct Words {
    std::atomic<uint64_t> state, value;
  };
  std::array<Words, kSensors> words_;
};

}  // namespace xpud::executor::process
