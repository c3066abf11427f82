// How the daemon asks an executor for its device's sensors: a few words in shared memory, so that neither
// waits for the other. The executor has a thread that sleeps until it is asked.
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
  // The daemon's end; one thread at a time. kNoAnswer where the executor has not answered within `limit`.
  SensorReadings Ask(std::chrono::milliseconds limit);
  // The executor's: answers each question with what `read` gives. Does not return.
  [[noreturn]] void Serve(absl::FunctionRef<SensorReadings()> read);

 private:
  // Counted by the daemon, and by the executor when an answer is whole. A late answer may be overwritten
  // while it is read: single values are whole.
  alignas(64) std::atomic<uint32_t> asked_;
  std::atomic<uint32_t> answered_;
  std::atomic<uint64_t> time_ns_;
  struct Words {
    std::atomic<uint64_t> state, value;
  };
  std::array<Words, kSensors> words_;
};

}  // namespace xpud::executor::process
