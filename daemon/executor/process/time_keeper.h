// Notes when an executor's work was appended and ran, while the daemon wants that. When it ran, the driver
// traces, or the clock tells where work is complete when its append returns. Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>

#include "daemon/executor/level_zero/level_zero_device.h"
#include "daemon/executor/process/replay_times.h"
#include "daemon/executor/process/times_exchange.h"
#include "proto/base/mutex.h"

namespace xpud::executor::process {

class TimeKeeper {
 public:
  TimeKeeper(LevelZeroDevice& device, TimesExchange& exchange);

  // Answers the daemon's wishes. Does not return.
  [[noreturn]] void Serve();
  bool on() const { return on_.load(std::memory_order_relaxed); }
  bool uses_clock() const { return uses_clock_; }

  // While it lives, its thread appends one piece of work of a queue, or a recording of several.
  class Appending {
   public:
    Appending(TimeKeeper& keeper, uint32_t queue, uint64_t number) {
      if (keeper.on()) [[unlikely]]
        Begin(keeper, queue, number);
    }
    // `counts` may be null; then it is not noted.
    Appending(TimeKeeper& keeper, uint32_t queue, uint64_t first,
              const std::shared_ptr<const OperationCounts>& counts) {
      if (keeper.on() && counts != nullptr) [[unlikely]]
        BeginRecording(keeper, queue, first, counts);
    }
    ~Appending() {
      if (keeper_ != nullptr) [[unlikely]]
        End();
    }
    Appending(const Appending&) = delete;
    Appending& operator=(const Appending&) = delete;

   private:
    void Begin(TimeKeeper& keeper, uint32_t queue, uint64_t number);
    void BeginRecording(TimeKeeper& keeper, uint32_t queue, uint64_t first,
                        const std::shared_ptr<const OperationCounts>& counts);
    void End();

    TimeKeeper* keeper_ = nullptr;
    TimesExchange::Entry entry_;
  };

 private:
  void Turn(bool on);
  uint64_t TagOfRecording(uint32_t queue, uint64_t first, std::shared_ptr<const OperationCounts> counts);
  void Report(std::span<const xpud_trace_record_t> records);

  LevelZeroDevice& device_;
  const bool uses_clock_;
  std::atomic<bool> on_{false};
  Mutex mutex_;
  TimesExchange& exchange_;  // it is added to under the mutex
  ReplayTimes replays_ ABSL_GUARDED_BY(mutex_);
  uint64_t replayed_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace xpud::executor::process
