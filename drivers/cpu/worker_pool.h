// The threads that run groups of kernels. The launching thread is worker 0 and always takes part; the others
// sleep when idle. Run may be called by any number of threads at once, and returns when all groups have run.
//
// A launch is published in one of a few slots. Workers claim ranges of groups with an atomic counter, so a
// slow or preempted worker delays only its own last range. Half of the workers claim from the first group on,
// the others from the last one back: so a launch that comes again finds its operands where it left them, in
// the same worker's cache. A slot is reused when no worker is inside it.
//
// A launch that runs in parts is claimed from the first group on only, so that those that are left are a
// range. After a part that ran out of time it stays open to workers that no other launch wants: they leave
// it, after a group, when another one is published.
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
  class OpenLaunch;
  // Runs a part of the groups, as `part` states. `open` is the list's.
  void RunPart(xpud_host_kernel_fn_t function, const void* const* arguments, const ze_group_count_t& groups,
               const xpud_launch_part_desc_t& part, OpenLaunch& open);

 private:
  static constexpr uint32_t kOpen = 1u << 31;
  static constexpr uint32_t kWaiting = 1u << 30;
  static constexpr int kSlots = 16, kMaxOpen = 8;

  struct Work {
    xpud_host_kernel_fn_t function = nullptr;
    const void* const* arguments = nullptr;
    ze_group_count_t groups{};
    uint64_t total = 0;  // groups
    uint64_t chunk = 1;  // groups of a range
    bool from_both_ends = false;

    uint64_t ranges() const { return (total + chunk - 1) / chunk; }
  };
  enum class End { kFront, kBack };

  // Written by the owner while closed, read by workers between entering and leaving.
  struct alignas(64) Slot {
    std::atomic<bool> taken{false};
    std::atomic<uint32_t> state{0};  // kOpen, kWaiting, and the number of workers inside
    Work work;
    std::atomic<bool> stops{false};  // no more claims
    // Set while the owner is away.
    std::atomic<bool> is_left{false};
    std::atomic<uint64_t> left_ns{0};    // when it left
    std::atomic<uint64_t> helped_ns{0};  // since it was last asked
    // The number of ranges claimed; from both ends, those at the back are counted in the upper half.
    alignas(64) std::atomic<uint64_t> claimed{0};

    bool HasMore() const;
    // Returns false if no range is left.
    bool Claim(End end, uint64_t& range);
  };

  static void* Scratch();
  void RunMany(xpud_host_kernel_fn_t function, const void* const* arguments, const ze_group_count_t& groups);
  Slot* TakeSlot();
  // Prepares `slot` and, unless it is the caller's own, publishes it.
  void Begin(Slot& slot, bool is_shared, uint64_t first, const Work& work);
  void Publish(Slot& slot);
  // Returns when no worker is inside, and gives a shared slot back. Returns the number of ranges claimed.
  uint64_t Finish(Slot& slot, bool is_shared);
  void Close(Slot& slot);
  // Leaves the slot to workers, if there is room for one more and groups are left.
  bool Leave(Slot& slot);
  // Runs ranges of groups while there are any, `goes_on()` after each, and nobody has stopped the launch.
  template <typename GoesOn>
  static void RunRanges(Slot& slot, End end, GoesOn&& goes_on);
  void RunAsWorker(Slot& slot, End end, uint32_t seen);
  // Returns false if time was up.
  static bool RunPartAsOwner(Slot& slot, const xpud_launch_part_desc_t& part);
  static void RunRange(const Work& work, uint64_t range);

  void StartThreads() ABSL_LOCKS_EXCLUDED(mutex_);  // does nothing if another launch starts them
  void Serve(uint32_t index);
  bool HelpAny(End end, uint32_t seen);
  bool Help(Slot& slot, End end, uint32_t seen);
  void SleepUntilPublished(uint32_t seen);

  const uint32_t workers_;
  Slot slots_[kSlots];
  alignas(64) std::atomic<uint32_t> epoch_{0};  // changes with each launch and at the end
  std::atomic<uint32_t> sleepers_{0};
  std::atomic<int> open_{0};          // launches that their owners have left
  std::atomic<bool> started_{false};  // all threads run
  std::atomic<bool> stopping_{false};
  Mutex mutex_;
  std::vector<std::thread> threads_ ABSL_GUARDED_BY(mutex_);
  uint64_t next_try_ns_ ABSL_GUARDED_BY(mutex_) = 0;
};

// A launch that goes on between its parts. The pool outlives it.
class WorkerPool::OpenLaunch {
 public:
  OpenLaunch() = default;
  ~OpenLaunch() { End(); }
  OpenLaunch(const OpenLaunch&) = delete;
  OpenLaunch& operator=(const OpenLaunch&) = delete;

  bool is_open() const { return slot_ != nullptr; }
  // Begins no more groups, and returns when none is running.
  void End();

 private:
  friend class WorkerPool;

  WorkerPool* pool_ = nullptr;
  Slot* slot_ = nullptr;
};

}  // namespace xpud::drivers::cpu
