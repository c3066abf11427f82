// The threads that run groups of kernels. The launching thread is worker 0 and always takes part; the others
// sleep when idle. Run may be called by any number of threads at once, and returns when all groups have run.
//
// A launch is published in one of a few slots. Workers claim ranges of groups with an atomic counter, so a
// slow or preempted worker delays only its own last range. A slot is reused when no worker is inside
// it.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "proto/base/mutex.h"
#include "proto/base/ze_ext.h"

namespace xpud::drivers::cpu {

// Runs one group. Loaded code lacks the type hash that UBSan would read in front of it.
__attribute__((no_sanitize("function"))) inline void RunGroup(xpud_host_kernel_fn_t function,
                                                              const void* const* arguments,
                                                              const uint32_t group[3], void* scratch) {
  function(arguments, group, scratch);
}

class WorkerPool {
 public:
  // `workers` counts the launching thread. Threads are started by the first launch that needs them. Fewer
  // threads complete launches too; those that could not be started are tried again, once a second.
  explicit WorkerPool(uint32_t workers);
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  uint32_t workers() const { return workers_; }

  void Run(xpud_host_kernel_fn_t function, const void* const* arguments, const ze_group_count_t& groups) {
    const uint64_t plane = uint64_t{groups.groupCountX} * groups.groupCountY;
    if (plane == 1 && groups.groupCountZ == 1) {
      constexpr uint32_t kOrigin[3] = {0, 0, 0};
      RunGroup(function, arguments, kOrigin, Scratch());
      return;
    }
    RunMany(function, arguments, groups);
  }
  // Runs a part of the groups, at least one, as `part` states.
  void RunPart(xpud_host_kernel_fn_t function, const void* const* arguments, const ze_group_count_t& groups,
               const xpud_launch_part_desc_t& part);

 private:
  static constexpr uint32_t kOpen = 1u << 31;
  static constexpr uint32_t kWaiting = 1u << 30;
  static constexpr int kSlots = 16;

  struct Work {
    xpud_host_kernel_fn_t function = nullptr;
    const void* const* arguments = nullptr;
    ze_group_count_t groups{};
    uint64_t total = 0;  // groups
    uint64_t chunk = 0;  // groups claimed at once
    const xpud_launch_part_desc_t* part = nullptr;
  };

  // Written by the owner while closed, read by workers between entering and leaving.
  struct alignas(64) Slot {
    std::atomic<bool> taken{false};
    std::atomic<uint32_t> state{0};  // kOpen, kWaiting, and the number of workers inside
    Work work;
    std::atomic<bool> stops{false};  // no more claims
    alignas(64) std::atomic<uint64_t> next{0};
  };

  static void* Scratch();
  void RunMany(xpud_host_kernel_fn_t function, const void* const* arguments, const ze_group_count_t& groups);
  uint64_t RunFrom(uint64_t first, const Work& work);
  Slot* TakeSlot();
  void Publish(Slot& slot);
  void Close(Slot& slot);  // returns when no worker is inside
  // Runs ranges of groups while there are any, `goes_on()` after each, and nobody has stopped the launch.
  template <typename GoesOn>
  static void RunRanges(Slot& slot, GoesOn&& goes_on);
  static void RunAsOwner(Slot& slot);
  static void RunRange(const Work& work, uint64_t begin, uint64_t end);

  void StartThreads() ABSL_LOCKS_EXCLUDED(mutex_);  // does nothing if another launch starts them
  void Serve(uint32_t index);
  bool HelpAny();
  static bool Help(Slot& slot);
  void SleepUntilPublished(uint32_t seen);

  const uint32_t workers_;
  Slot slots_[kSlots];
  alignas(64) std::atomic<uint32_t> epoch_{0};  // changes with each launch and at the end
  std::atomic<uint32_t> sleepers_{0};
  std::atomic<bool> started_{false};  // all threads run
  std::atomic<bool> stopping_{false};
  Mutex mutex_;
  std::vector<std::thread> threads_ ABSL_GUARDED_BY(mutex_);
  uint64_t next_try_ns_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace xpud::drivers::cpu
