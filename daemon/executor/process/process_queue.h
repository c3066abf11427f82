// A queue whose work an executor process appends. Keeps what is not known to be done, and sends it again to
// the next executor. The engine thread only.
#pragma once

#include <chrono>
#include <optional>

#include "absl/functional/function_ref.h"
#include "daemon/executor/api/device_queue.h"
#include "daemon/executor/process/command_log.h"
#include "daemon/executor/process/message_buffer.h"

namespace xpud::executor::process {

class ProcessDevice;

class ProcessQueue final : public DeviceQueue {
 public:
  using Clock = std::chrono::steady_clock;

  ProcessQueue(ProcessDevice& device, size_t ring, uint32_t slot, uint64_t owner, int priority)
      : device_(device), ring_(ring), slot_(slot), owner_(owner), priority_(priority) {}
  ~ProcessQueue() override;
  ProcessQueue(const ProcessQueue&) = delete;
  ProcessQueue& operator=(const ProcessQueue&) = delete;

  absl::Status Launch(const kernels::LaunchList& launches, std::span<const MemoryUse> uses) override;
  absl::Status Copy(void* target, const void* source, uint64_t bytes) override;
  absl::Status Upload(void* target, std::span<const std::byte> source) override;
  absl::Status Zero(void* target, uint64_t bytes) override;
  absl::Status WriteValue(uint64_t* word, uint64_t value) override;
  absl::Status WriteTimestamp(uint64_t* word) override;
  void Watch(const uint64_t* done) override { done_ = done; }
  bool ready() const override;
  void Completed(uint64_t value) override;
  bool HasTrouble() const override;
  Trouble TakeTrouble() override;

  // For the device.
  uint32_t slot() const { return slot_; }
  size_t ring() const { return ring_; }
  uint64_t owner() const { return owner_; }
  // What the executor is told first, and last.
  bool SendCreation();
  void SendDestruction();
  // Sends what is not sent, as far as the ring has room. True: all of it.
  bool SendRest() { return !held_ && SendUpTo(log_.size()); }
  // The same of what had begun when the last executor died.
  bool SendStarted() { return SendUpTo(started_); }
  // Takes what the executor reported, which goes with it.
  void KeepReport();
  // The executor has died at position `taken` of the queue's ring. What is left is held until Release.
  void Rewind(uint64_t taken);
  void Release() { held_ = false; }
  void Forget();  // nothing of it is sent again
  // Commands that had begun when the last executor died, and are to be run again.
  size_t started() const { return started_; }
  // How often the least known kernel among them has been run to its end.
  uint64_t LeastProven();
  // Whether the device was given all up to an announcement that it has not made.
  bool Awaited(uint64_t taken);
  // Kernels that work which is not known to be done launches.
  void ForEachKernel(absl::FunctionRef<void(uint32_t)> visit);
  // Whether the message at `position` of the ring is one of its own.
  bool Holds(uint64_t position);
  bool empty() const { return log_.empty(); }
  Clock::time_point last_progress() const { return last_progress_; }

 private:
  // A message of the command that is being put together.
  Message& Add(MessageKind kind, size_t payload = 0) { return scratch_.Add(kind, slot_, payload); }
  absl::Status Append(std::span<const MemoryUse> uses, uint64_t mark = 0);
  bool SendUpTo(size_t count);
  bool Send(CommandLog::Command& command, std::span<const std::byte> messages);

  ProcessDevice& device_;
  const size_t ring_;
  const uint32_t slot_;
  const uint64_t owner_;
  const int priority_;
  const uint64_t* done_ = nullptr;
  CommandLog log_;
  size_t sent_ = 0;  // commands of the log
  bool held_ = false;
  bool created_ = false;  // with this executor
  size_t started_ = 0;
  Trouble trouble_;
  Clock::time_point last_progress_ = Clock::now();
  MessageBuffer scratch_;
};

}  // namespace xpud::executor::process
