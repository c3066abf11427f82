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
#include "proto/base/spin.h"

namespace xpud::executor::process {

// Which of an executor's workers may have work under way. Any thread.
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
  // `number`: among the executor's workers, which share `activity`.
  RingWorker(LevelZeroDevice& device, PrivateRing& ring, Activity& activity, uint32_t number);

  // Until the device is lost: gives why.
  absl::Status Run();

 private:
  using Clock = std::chrono::steady_clock;
  struct Queue {
    std::unique_ptr<LevelZeroQueue> list;  // null: it could not be made yet
    int32_t priority = 0;
    bool busy = false;  // may have work under way
  };

  // Where the next messages are launches that came before: appends them as one. False: nothing is done.
  absl::StatusOr<bool> ReplayBatch();
  // The recording of these messages, made now if need be. Null: they are to be appended one by one.
  absl::StatusOr<const Recording*> RecordingOf(std::span<const std::byte> messages, Queue& queue);
  // Whether another queue may have work under way: a GPU's driver may wait for it when it makes a recording.
  bool OthersWork(const Queue& queue);
  void Begin(Queue& queue);  // it is given work
  absl::Status Record(std::span<const std::byte> messages, LevelZeroQueue& queue, Recording& recording);
  // UnavailableError: the device is lost. Other errors are the queue's.
  absl::Status Handle(const Message& message);
  absl::Status CreateQueue(const Message& message);
  absl::Status LoadKernel(const Message& message);
  absl::Status Launch(const Message& message, LevelZeroQueue& queue);
  static absl::Status Announce(const Message& message, LevelZeroQueue& queue);
  static absl::Status WriteAtOnce(const Message& message);
  void LoadModule(const Message& message);
  void UnloadKernel(const Message& message);
  void Report(uint32_t queue, const absl::Status& error);
  // Nothing to append: looks after the device, and sleeps.
  absl::Status Idle();
  absl::Status CheckQueues();

  LevelZeroDevice& device_;
  PrivateRing& ring_;
  Activity& activity_;
  const uint32_t number_;
  bool working_ = false;  // as activity_ knows
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
