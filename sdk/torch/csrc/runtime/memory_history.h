// The history of this process's allocations on devices, for torch.xpud.memory: what holds memory, what was
// allocated and freed, and where the program did so. Off until somebody starts it. Thread-safe.
#pragma once

#include <torch/csrc/profiler/combined_traceback.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

namespace xpud::shim {

class MemoryHistory {
 public:
  struct Options {
    bool events = true;            // keep allocations and frees; otherwise only where memory in use came from
    bool alloc_stacks = true;      // where the program allocated
    bool free_stacks = true;       // where it freed
    bool native_frames = false;    // C++ functions, too
    size_t max_events = SIZE_MAX;  // the newest stay
  };
  enum class Action : uint8_t { kAllocate, kFree, kOutOfMemory };
  using Stack = std::shared_ptr<torch::CapturedTraceback>;  // null: not recorded
  struct Event {
    Action action;
    int device;
    int64_t stream;
    uint64_t address;  // kOutOfMemory: the bytes that were free
    uint64_t bytes;
    int64_t time_us;  // since 1970
    Stack stack;
  };

  static MemoryHistory& Get();

  static bool IsOn() { return on_.load(std::memory_order_relaxed); }
  void Start(const Options& options);
  void Stop();  // what was recorded stays
  void Clear();

  // Does nothing if the history is off.
  void Note(Action action, int device, int64_t stream, uint64_t address, uint64_t bytes);

  std::vector<Event> Events() const;      // the oldest first
  Stack StackOf(uint64_t address) const;  // where memory in use was allocated

 private:
  MemoryHistory();

  static std::atomic<bool> on_;
  struct State;
  const std::unique_ptr<State> state_;
};

}  // namespace xpud::shim
