// A stored command: the events it waits for, its operation, and the event it signals. Immutable, so that a
// closed list may run any number of times. Run by one thread at a time.
#pragma once

#include <atomic>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "drivers/cpu/event.h"
#include "drivers/cpu/operations.h"
#include "drivers/cpu/worker_pool.h"
#include "drivers/frontend/clock.h"

namespace xpud::drivers::cpu {

// Does the work of `operation` now and signals `signal`, if any.
template <typename Operation>
void RunAndSignal(const Operation& operation, EventState* signal, WorkerPool& pool) {
  if (signal == nullptr) return Run(operation, pool);
  if (!signal->timestamps()) {
    Run(operation, pool);
    return signal->Signal();
  }
  const uint64_t start = NowNs();
  Run(operation, pool);
  signal->SignalWithTimes(start, NowNs());
}

class Command {
 public:
  explicit Command(const Sync& sync) : sync_(KeptSync<EventState>::Of<CpuEvent>(sync)) {}
  virtual ~Command() = default;

  bool waits() const { return !sync_.waits.empty(); }
  // Whether it runs after all earlier commands of a list, and before all later ones.
  virtual bool is_barrier() const { return false; }
  // Returns false, without doing anything, if `stop` was set before the awaited events were signalled.
  bool Run(WorkerPool& pool, const std::atomic<bool>& stop) const {
    for (const auto& event : sync_.waits) {
      if (!event->signalled() && !event->Wait(UINT64_MAX, &stop)) return false;
    }
    return Work(pool, stop);
  }

 protected:
  EventState* signal() const { return sync_.signal.get(); }

 private:
  virtual bool Work(WorkerPool& pool, const std::atomic<bool>& stop) const = 0;

  const KeptSync<EventState> sync_;
};

template <typename Operation>
class CommandOf final : public Command {
 public:
  CommandOf(Operation operation, const Sync& sync) : Command(sync), operation_(std::move(operation)) {}
  bool is_barrier() const override { return std::is_same_v<Operation, Nothing>; }

 private:
  bool Work(WorkerPool& pool, const std::atomic<bool>&) const override {
    RunAndSignal(operation_, signal(), pool);
    return true;
  }
  Operation operation_;
};

// Copies what the operation borrows (arguments, patterns) into a command.
template <typename Operation>
std::unique_ptr<Command> KeepCommand(const Operation& operation, const Sync& sync) {
  auto kept = Keep(operation);
  return std::make_unique<CommandOf<decltype(kept)>>(std::move(kept), sync);
}

using CommandSequence = std::vector<std::unique_ptr<Command>>;

// Runs the commands in order. Returns false as Command::Run does.
inline bool Run(const CommandSequence& commands, WorkerPool& pool, const std::atomic<bool>& stop) {
  for (const auto& command : commands) {
    if (!command->Run(pool, stop)) return false;
  }
  return true;
}

}  // namespace xpud::drivers::cpu
