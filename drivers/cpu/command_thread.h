// Runs a device's commands on a thread of its own, started when first needed: in order, or, for tests, as far
// out of order as barriers allow. REQUIRES: one thread
// enqueues at a time; any thread may wait. Destroying one drops commands that have not run.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <thread>

#include "drivers/cpu/command.h"
#include "drivers/cpu/device.h"
#include "drivers/frontend/timeline.h"
#include "proto/base/mutex.h"

namespace xpud::drivers::cpu {

class CommandThread final : public Timeline {
 public:
  CommandThread(CpuDevice& device, bool in_order) : device_(device), in_order_(in_order) {}
  ~CommandThread() override;

  CpuDevice& device() const { return device_; }
  bool in_order() const { return in_order_; }
  // Whether all enqueued commands are done; their effects are then visible to the caller.
  bool idle() const { return pending_.load(std::memory_order_acquire) == 0; }
  // Throws bad_alloc or system_error; then nothing was enqueued.
  void Enqueue(std::unique_ptr<Command> command) ABSL_LOCKS_EXCLUDED(mutex_);
  ze_result_t Wait(uint64_t timeout_ns) const override ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  void Serve() ABSL_LOCKS_EXCLUDED(mutex_);
  std::unique_ptr<Command> Next() ABSL_LOCKS_EXCLUDED(mutex_);
  void Finish() ABSL_LOCKS_EXCLUDED(mutex_);
  size_t NextOutOfOrder() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  CpuDevice& device_;
  const bool in_order_;
  std::atomic<uint64_t> pending_{0};
  std::atomic<bool> stopping_{false};
  mutable Mutex mutex_;
  CondVar work_;
  mutable CondVar done_;
  std::deque<std::unique_ptr<Command>> queue_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace xpud::drivers::cpu
