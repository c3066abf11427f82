// A command as it is kept: what it waits for, what it does, what it signals. Immutable once made, so that a
// closed list may run any number of times. Run by one thread at a time.
#pragma once

#include <atomic>
#include <memory>
#include <utility>
#include <vector>

#include "drivers/cpu/event.h"
#include "drivers/cpu/worker_pool.h"
#include "drivers/frontend/clock.h"
#include "drivers/frontend/command_list.h"

namespace xpud::drivers::cpu {

// Does the work of `operation` now and signals `signal`, if any.
template <typename Operation>
void RunAndSignal(const Operation& operation, EventState* signal, WorkerPool& pool) {
  if (signal == nullptr) return operation.Run(pool);
  if (!signal->timestamps()) {
    operation.Run(pool);
    return signal->Signal();
  }
  const uint64_t start = NowNs();
  operation.Run(pool);
  signal->SignalWithTimes(start, NowNs());
}

class Command {
 public:
  explicit Command(const Sync& sync) {
    for (Event* event : sync.waits) waits_.push_back(static_cast<CpuEvent*>(event)->shared_state());
    if (sync.signal != nullptr) signal_ = static_cast<CpuEvent*>(sync.signal)->shared_state();
  }
  virtual ~Command() = default;

  // False when `stop` was set before the events it waits for were signalled; then nothing was done.
  bool Run(WorkerPool& pool, const std::atomic<bool>& stop) const {
    for (const auto& event : waits_) {
      if (!event->signalled() && !event->Wait(UINT64_MAX, &stop)) return false;
    }
    return Work(pool, stop);
  }

 protected:
  EventState* signal() const { return signal_.get(); }

 private:
  virtual bool Work(WorkerPool& pool, const std::atomic<bool>& stop) const = 0;

  std::vector<std::shared_ptr<EventState>> waits_;
  std::shared_ptr<EventState> signal_;
};

template <typename Operation>
class CommandOf final : public Command {
 public:
  CommandOf(Operation operation, const Sync& sync) : Command(sync), operation_(std::move(operation)) {}

 private:
  bool Work(WorkerPool& pool, const std::atomic<bool>&) const override {
    RunAndSignal(operation_, signal(), pool);
    return true;
  }
  Operation operation_;
};

// Takes what the operation only borrows (arguments, patterns) into the command.
template <typename Operation>
std::unique_ptr<Command> Keep(const Operation& operation, const Sync& sync) {
  auto kept = operation.Keep();
  return std::make_unique<CommandOf<decltype(kept)>>(std::move(kept), sync);
}

}  // namespace xpud::drivers::cpu
