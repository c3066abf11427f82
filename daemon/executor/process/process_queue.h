// A queue whose work an executor process appends. Keeps unfinished commands, and sends them again to the next
// executor. It can move to another ring, or to another executor of the device, once its work is done.
// REQUIRES: the lane's thread.
#pragma once

#include <chrono>
#include <optional>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "daemon/executor/api/device_queue.h"
#include "daemon/executor/process/command_log.h"
#include "daemon/executor/process/executor_rings.h"
#include "daemon/executor/process/kernel_table.h"
#include "daemon/executor/process/message_buffer.h"
#include "daemon/executor/process/queue_slots.h"
#include "daemon/tenant/time_grant.h"

namespace xpud::executor::process {

// Where a queue is: an executor's rings, and what has been loaded through them.
struct QueueHome {
  ExecutorRings& rings;
  KernelTable& kernels;
  bool apart = false;  // see DeviceQueue::apart
};

class ProcessQueue final : public DeviceQueue {
 public:
  using Clock = std::chrono::steady_clock;

  // Takes a free slot of `slots`. What it is made with outlives it.
  ProcessQueue(QueueHome& home, QueueSlots& slots, uint32_t slot, uint64_t owner, PriorityClass priority);
  ~ProcessQueue() override;
  ProcessQueue(const ProcessQueue&) = delete;
  ProcessQueue& operator=(const ProcessQueue&) = delete;

  absl::Status Launch(const kernels::LaunchList& launches, std::span<const MemoryUse> uses) override;
  absl::Status Copy(void* target, const void* source, uint64_t bytes) override;
  absl::Status Upload(void* target, std::span<const std::byte> source) override;
  absl::Status WriteValue(uint64_t* word, uint64_t value) override;
  absl::Status WriteTimestamp(uint64_t* word) override;
  void Watch(const uint64_t* done) override { done_ = done; }
  uint64_t appended() const override { return appended_; }
  bool times_work() const override;
  std::vector<WorkTime> TakeTimes() override { return std::exchange(times_, {}); }
  void SetPriority(PriorityClass priority) override;
  bool apart() const override { return home_->apart; }
  bool ready() const override;
  void Completed(uint64_t value) override;
  bool HasTrouble() const override;
  bool is_lost() const override { return lost_; }
  Trouble TakeTrouble() override;

  // For ProcessDevice and its parts.
  void AddTime(const WorkTime& time) {
    if (times_.size() < TimesExchange::kCapacity) times_.push_back(time);
  }
  // Begins to move to this home; it takes no more work until it is there.
  void Move(QueueHome& home);
  // Moves now, with the work that the next executor would have got. REQUIRES: Rewind was called.
  void MoveAfterLoss(QueueHome& home);
  const QueueHome& home() const { return *home_; }
  bool moves() const { return moves_; }
  PriorityClass priority() const { return priority_; }
  // Whether it has had a command whose launches each take kLongLaunchNs or more by their prediction.
  bool had_long() const { return had_long_; }
  uint32_t slot() const { return slot_; }
  size_t ring() const { return ring_; }
  uint64_t owner() const { return owner_; }
  // Messages that create and destroy the queue in the executor.
  bool SendCreation();
  void SendDestruction();
  // Sends the commands that were not sent, as far as the ring has space. Returns true if all were sent.
  bool SendRest() { return !held_ && SendUpTo(log_.size()); }
  // The same for commands that had started when the last executor died.
  bool SendStarted() { return SendUpTo(started_); }
  // Keeps the error that the executor reported, which is lost with the executor's memory.
  void KeepReport();
  // Called when the executor has died at `taken`, a position of the queue's ring. The remaining commands are
  // held back until Release.
  void Rewind(uint64_t taken);
  void Release() {
    held_ = false;
    if (moves_) Settle();
  }
  void Forget();  // its work is lost: drops all commands
  // Count of commands that had started when the last executor died, and must run again.
  size_t started() const { return started_; }
  // The lowest count of completed runs among the kernels of these commands.
  uint64_t MinCompletedRuns();
  // Whether the device was given everything up to a mark that it has not reached.
  bool HasUnreachedMark(uint64_t taken);
  // Calls `visit` with the kernels of unfinished work.
  void ForEachKernel(absl::FunctionRef<void(uint32_t)> visit);
  // Whether the message at ring position `position` belongs to this queue.
  bool Holds(uint64_t position);
  bool empty() const { return log_.empty(); }
  Clock::time_point last_progress() const { return last_progress_; }

 private:
  static constexpr uint64_t kLongLaunchNs = 1'000'000;

  // Whether it is where it should be: in a ring of its class.
  bool IsPlaced() const;
  void Settle();  // moves if it may
  // Adds a message to the command that is being built.
  Message& Add(MessageKind kind, size_t payload = 0) {
    if (IsWork(kind)) ++appended_;
    return scratch_.Add(kind, slot_, payload);
  }
  absl::Status Append(std::span<const MemoryUse> uses, uint64_t mark = 0);
  bool SendUpTo(size_t count);
  bool Send(CommandLog::Command& command, std::span<const std::byte> messages);

  QueueHome* home_;       // not null
  QueueHome* next_home_;  // where it should be; not null
  QueueSlots& slots_;
  const uint32_t slot_;
  const uint64_t owner_;
  PriorityClass priority_;          // of its session
  PriorityClass created_priority_;  // as the executor knows it
  size_t ring_;
  bool moves_ = false;  // waits for the end of its work
  bool had_long_ = false;
  const uint64_t* done_ = nullptr;
  CommandLog log_;
  size_t sent_ = 0;  // count of sent commands of the log
  bool held_ = false, lost_ = false;
  bool created_ = false;  // in this executor
  size_t started_ = 0;
  Trouble trouble_;
  Clock::time_point last_progress_ = Clock::now();
  MessageBuffer scratch_;
  uint64_t appended_;  // continues the count of the slot's last queue
  std::vector<WorkTime> times_;
};

}  // namespace xpud::executor::process
