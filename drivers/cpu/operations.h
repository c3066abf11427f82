// The operations of commands on the CPU device. See drivers/frontend/operations.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "drivers/cpu/event.h"
#include "drivers/cpu/module.h"
#include "drivers/cpu/worker_pool.h"
#include "drivers/frontend/operations.h"

namespace xpud::drivers::cpu {

// A launch that owns its arguments.
class KeptLaunch {
 public:
  KeptLaunch(const EntryPoint& entry, const void* const* arguments)
      : function_(entry.host), arguments_(entry.argument_sizes, arguments) {}
  // Sets the group counts; if `indirect` is not null, they are read from there at execution.
  KeptLaunch& With(const ze_group_count_t& groups, const ze_group_count_t* indirect);
  void Run(WorkerPool& pool) const {
    pool.Run(function_, arguments_.pointers(), indirect_ == nullptr ? groups_ : *indirect_);
  }

 private:
  xpud_host_kernel_fn_t function_;
  ze_group_count_t groups_{};
  const ze_group_count_t* indirect_ = nullptr;
  Arguments arguments_;
};

struct Launch {
  const EntryPoint& entry;
  const void* const* arguments;
  ze_group_count_t groups{};
  const ze_group_count_t* indirect = nullptr;
};

// Several launches with their own group counts. The first *count of them run. The counts are read at
// execution.
struct LaunchMultiple {
  std::shared_ptr<const std::vector<KeptLaunch>> launches;
  const uint32_t* count;
};

inline KeptLaunch Keep(const Launch& launch) {
  return std::move(KeptLaunch(launch.entry, launch.arguments).With(launch.groups, launch.indirect));
}
inline LaunchMultiple Keep(const LaunchMultiple& launches) { return launches; }

// These functions perform an operation now.
inline void Run(const Nothing&, WorkerPool&) {}
inline void Run(const KeptLaunch& launch, WorkerPool& pool) { launch.Run(pool); }
inline void Run(const Launch& launch, WorkerPool& pool) {
  pool.Run(launch.entry.host, launch.arguments,
           launch.indirect == nullptr ? launch.groups : *launch.indirect);
}
void Run(const LaunchMultiple& launches, WorkerPool& pool);
void Run(const Copy& copy, WorkerPool& pool);
void Run(const CopyRegion& copy, WorkerPool& pool);
void Run(const Fill& fill, WorkerPool& pool);
inline void Run(const KeptFill& fill, WorkerPool& pool) { Run(fill.borrowed(), pool); }
inline void Run(const ResetEvent<EventState>& reset, WorkerPool&) { reset.event->Reset(); }
void Run(const WriteTimestamp& write, WorkerPool& pool);
void Run(const QueryTimestamps<EventState>& query, WorkerPool& pool);
inline void Run(const WriteValue64& write, WorkerPool&) {
  std::atomic_ref<uint64_t>(*write.address).store(write.value, std::memory_order_release);
}

}  // namespace xpud::drivers::cpu
