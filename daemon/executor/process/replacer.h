// Replaces a lost executor, on a thread of its own: ends it, has the spare take the device, and gives that
// one the memory. Owned by ProcessDevice. REQUIRES: the lane's thread.
#pragma once

#include <atomic>
#include <functional>
#include <optional>
#include <thread>
#include <utility>

#include "absl/status/statusor.h"
#include "daemon/executor/process/memory_map.h"
#include "daemon/executor/process/shared_executor.h"
#include "daemon/executor/process/spare_executor.h"

namespace xpud::executor::process {

class Replacer {
 public:
  enum class Ending { kEnded, kFaulted, kHung };  // how the executor was lost
  struct Replacement {
    absl::StatusOr<Process> process = absl::UnknownError("");
    MemoryMap::Parts memory;   // what the new executor has mapped
    ExecutorProcess::End end;  // how the lost executor ended
  };

  // `spare` outlives this. `wake` is called on any thread when Take has something to return.
  Replacer(SpareExecutor& spare, std::function<void()> wake) : spare_(spare), wake_(std::move(wake)) {}
  ~Replacer();  // waits for the thread
  Replacer(const Replacer&) = delete;
  Replacer& operator=(const Replacer&) = delete;

  // Begins. `dead`: the lost executor; null if it was replaced before, by one that did not work. REQUIRES:
  // Take has returned the last replacement.
  void Start(Process dead, Ending ending, MemoryMap::Parts memory);
  // Returns the replacement once.
  std::optional<Replacement> Take();

 private:
  Replacement Replace(const Process& dead, Ending ending, const MemoryMap::Parts& memory);

  SpareExecutor& spare_;
  const std::function<void()> wake_;
  std::atomic<bool> ready_{false};
  Replacement replacement_;  // belongs to the thread until ready_
  std::thread thread_;
};

}  // namespace xpud::executor::process
