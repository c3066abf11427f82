// A post on a device that one executor after another holds: its rings, what the present one has, and what
// happens when it is lost. A device has a post for all classes, and may have one for class batch. Owned by
// ProcessDevice. REQUIRES: the lane's thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "daemon/executor/api/device.h"
#include "daemon/executor/process/executor_rings.h"
#include "daemon/executor/process/hang_watch.h"
#include "daemon/executor/process/kernel_table.h"
#include "daemon/executor/process/memory_holder.h"
#include "daemon/executor/process/process_queue.h"
#include "daemon/executor/process/queue_slots.h"
#include "daemon/executor/process/recovery.h"
#include "daemon/executor/process/replacer.h"
#include "daemon/executor/process/shared_executor.h"
#include "daemon/executor/process/spare_executor.h"

namespace xpud::executor::process {

class ExecutorPost {
 public:
  struct Options {
    const char* name = "";  // in logs
    uint32_t device = 0;    // index among the daemon's devices
    RingPlan rings;
    bool apart = false;                                           // for one class
    MemoryHolder::Clients clients = MemoryHolder::Clients::kAll;  // whose memory it has
    std::function<void()> wake;                                   // as ProcessDeviceOptions::wake
  };
  // The others outlive it. It is vacant.
  static absl::StatusOr<std::unique_ptr<ExecutorPost>> Create(Options options, QueueSlots& queues,
                                                              SpareExecutor& spare, MemoryMap& memory);
  ExecutorPost(const ExecutorPost&) = delete;
  ExecutorPost& operator=(const ExecutorPost&) = delete;
  // The device ends: nobody waits for an executor any more.
  void End();

  // The post is taken by this executor, which has the device.
  absl::Status Fill(Process first);
  // The post is taken by the spare, or by a new executor, soon.
  void Open();
  // It becomes vacant. Returns the executor, whose end may be waited for elsewhere; null: there is none.
  // REQUIRES: no queue is here.
  Process Vacate();
  enum class State {
    kVacant,
    kOpening,  // or its executor is being replaced
    kOnline,
    kLost,  // for good: no executor could be started
  };
  State state() const { return state_; }

  // Checks the executor, and goes on with its replacement. Call often. `command_limit`: 0: none.
  void Poll(std::chrono::milliseconds command_limit);
  std::vector<Verdict> TakeVerdicts() { return recovery_->TakeVerdicts(); }
  // For a post that is kLost. Its sessions are blamed.
  void Blame();
  // Or its queues go on at this home, and only sessions whose work may have ended the executor are blamed.
  // Then it is vacant.
  void GiveUp(QueueHome& home);

  QueueHome& home() { return home_; }
  ExecutorRings& rings() { return rings_; }
  KernelTable& kernels() { return kernels_; }
  MemoryHolder& memory() { return memory_; }
  SharedExecutor& shared() { return shared_; }
  const Process& process() const { return process_; }  // until its replacement is ready, the lost one
  ExecutorStatus status() const {
    return {.pid = rings_.online() ? process_->pid() : 0, .lost = lost_, .replaced = replaced_};
  }
  const std::string& loss() const { return loss_; }  // the last one

 private:
  using Clock = std::chrono::steady_clock;

  ExecutorPost(Options options, QueueSlots& queues, SpareExecutor& spare, MemoryMap& memory);
  void TakeTimes();
  void CheckHealth(std::chrono::milliseconds command_limit);
  void ProbeSuspects(std::chrono::milliseconds command_limit);
  // `hung`: the sessions whose commands exceeded the limit.
  void Lose(Replacer::Ending ending, const std::string& what, std::vector<uint64_t> hung = {});
  void FinishReplacement(Replacer::Replacement replacement);
  absl::Status Adopt(Replacer::Replacement replacement);

  const Options options_;
  QueueSlots& queues_;
  SpareExecutor& spare_;
  MemoryMap& map_;
  State state_ = State::kVacant;
  Process process_;  // null: there is none
  SharedExecutor shared_;
  ExecutorRings rings_;  // online: process_ works
  KernelTable kernels_{rings_};
  QueueHome home_{rings_, kernels_, options_.apart};
  MemoryHolder memory_;
  HangWatch hangs_{rings_, queues_};
  std::unique_ptr<Recovery> recovery_;
  Replacer replacer_;

  Clock::time_point last_check_;
  uint64_t lost_ = 0, replaced_ = 0;  // see ExecutorStatus
  bool replaces_ = false;             // an executor was lost, and its successor is not there yet
  int failures_ = 0;                  // consecutive failures to start an executor
  std::string end_;                   // of kLost: why

  // The last loss.
  std::string loss_;  // its description
  Clock::time_point lost_at_;
  std::vector<uint64_t> hung_;  // see Lose; until the executor has ended
};

}  // namespace xpud::executor::process
