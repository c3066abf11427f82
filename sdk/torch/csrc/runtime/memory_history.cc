#include "sdk/torch/csrc/runtime/memory_history.h"

#include <chrono>
#include <deque>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "proto/base/mutex.h"

namespace xpud::shim {

struct MemoryHistory::State {
  Mutex mutex;
  Options options ABSL_GUARDED_BY(mutex);
  std::deque<Event> events ABSL_GUARDED_BY(mutex);
  absl::flat_hash_map<uint64_t, Stack> in_use ABSL_GUARDED_BY(mutex);  // by address
};

std::atomic<bool> MemoryHistory::on_{false};

MemoryHistory::MemoryHistory() : state_(std::make_unique<State>()) {}

MemoryHistory& MemoryHistory::Get() {
  static auto* const history = new MemoryHistory;  // tensors may be freed while the process ends
  return *history;
}

void MemoryHistory::Start(const Options& options) {
  MutexLock lock(state_->mutex);
  state_->options = options;
  on_ = true;
}

void MemoryHistory::Stop() { on_ = false; }

void MemoryHistory::Clear() {
  std::deque<Event> events;  // freed without the lock: stacks belong to Python
  MutexLock lock(state_->mutex);
  events.swap(state_->events);
}

void MemoryHistory::Note(Action action, int device, int64_t stream, uint64_t address, uint64_t bytes) {
  if (!IsOn()) return;
  Options options;
  {
    MutexLock lock(state_->mutex);
    options = state_->options;
  }
  const bool wants_stack = action == Action::kFree ? options.free_stacks : options.alloc_stacks;
  // Without the lock: this may take the interpreter's lock.
  const Stack stack =
      wants_stack ? torch::CapturedTraceback::gather(/*python=*/true, /*script=*/false, options.native_frames)
                  : nullptr;
  const int64_t now = std::chrono::duration_cast<std::chrono::microseconds>(
                          std::chrono::system_clock::now().time_since_epoch())
                          .count();
  Stack freed;
  std::deque<Event> dropped;
  MutexLock lock(state_->mutex);
  if (action == Action::kAllocate) freed = std::exchange(state_->in_use[address], stack);
  if (action == Action::kFree) {
    if (const auto found = state_->in_use.find(address); found != state_->in_use.end()) {
      freed = std::move(found->second);
      state_->in_use.erase(found);
    }
  }
  if (!options.events) return;
  state_->events.push_back({action, device, stream, address, bytes, now, stack});
  while (state_->events.size() > options.max_events) {
    dropped.push_back(std::move(state_->events.front()));
    state_->events.pop_front();
  }
}

std::vector<MemoryHistory::Event> MemoryHistory::Events() const {
  MutexLock lock(state_->mutex);
  return {state_->events.begin(), state_->events.end()};
}

MemoryHistory::Stack MemoryHistory::StackOf(uint64_t address) const {
  MutexLock lock(state_->mutex);
  const auto found = state_->in_use.find(address);
  return found == state_->in_use.end() ? nullptr : found->second;
}

}  // namespace xpud::shim
