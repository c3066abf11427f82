// An executor's appending thread: takes messages from the ring and appends them to Level Zero queues.
#pragma once

#include <atomic>
#include <chrono>
#include <deque>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "daemon/executor/level_zero/level_zero_queue.h"
#include "daemon/executor/process/launch_batch.h"
#include "daemon/executor/process/private_ring.h"
#include "daemon/executor/process/recordings.h"
#include "daemon/executor/process/time_keeper.h"
#include "daemon/tenant/time_grant.h"
#include "proto/base/spin.h"

namespace xpud::executor::process {

// Which workers of an executor may have work in flight. Thread-safe.
class Activity {
 public:
  void Set(uint32_t worker) { working_.fetch_or(1u << worker); }
  void Clear(uint32_t worker) { working_.fetch_and(~(1u << worker)); }
  bool OthersThan(uint32_t worker) const { return (working_.load() & ~(1u << worker)) != 0; }

 private:
  std::atomic<uint32_t> working_{0};
};

class RingWorker {
 public:
  // `number` is the worker's index among those that share `activity`.
  RingWorker(LevelZeroDevice& device, PrivateRing& ring, Activity& activity, TimeKeeper& times,
             uint32_t number);

  // Runs until the device is lost. Returns the reason.
  absl::Status Run();

 private:
  using Clock = std::chrono::steady_clock;
  struct Queue {
    std::unique_ptr<LevelZeroQueue> list;  // null: could not be created yet
    PriorityClass priority = PriorityClass::kInteractive;
    bool busy = false;    // may have work in flight
    uint64_t number = 0;  // of its next piece of work
  };

  // If the next messages are a batch that recurs, appends its recording. Returns false if nothing was done.
  absl::StatusOr<bool> ReplayBatch();
  // Returns the recording of these messages, creating it if need be. Null: append them one by one.
  absl::StatusOr<const Recording*> RecordingOf(std::span<const std::byte> messages, Queue& queue);
  // Whether another queue may have work in flight. A GPU's driver may wait for that work when it creates a
  // recording.
  bool OtherQueuesAreBusy(const Queue& queue);
  void Begin(Queue& queue);  // called before the queue gets work
  absl::Status Record(std::span<const std::byte> messages, LevelZeroQueue& queue, Recording& recording);
  // Unavailable: the device is lost. Other errors belong to the queue.
  absl::Status Handle(const Message& message);
  absl::Status CreateQueue(const Message& message);
  absl::Status LoadKernel(const Message& message);
  absl::Status Launch(const Message& message, LevelZeroQueue& queue);
  static absl::Status Announce(const Message& message, LevelZeroQueue& queue);
  static absl::Status WriteAtOnce(const Message& message);
  void LoadModule(const Message& message);
  void UnloadKernel(const Message& message);
  void Report(uint32_t queue, const absl::Status& error);
  // Called when there is nothing to append. Checks the device, and sleeps.
  absl::Status Idle();
  absl::Status CheckQueues();

  LevelZeroDevice& device_;
  PrivateRing& ring_;
  Activity& activity_;
  TimeKeeper& times_;
  const uint32_t number_;
  bool working_ = false;  // this worker's bit of activity_
  std::vector<Queue> queues_;
  std::vector<std::unique_ptr<kernels::ModuleImage>> modules_;  // by number
  std::deque<kernels::Kernel> kernels_;
  std::vector<const void*> arguments_;
  Recordings recordings_;
  uint64_t single_until_ = 0;  // messages before this position are appended one by one
  Clock::time_point idle_since_, checked_;
  bool idle_ = false;
};

}  // namespace xpud::executor::process
