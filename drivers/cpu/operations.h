// What commands do. An operation borrows its inputs and can Run at once; Keep gives a form that owns them and
// may run later. Those without inputs to own are kept as they are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "drivers/cpu/event.h"
#include "drivers/cpu/module.h"
#include "drivers/cpu/worker_pool.h"
#include "drivers/frontend/command_list.h"

namespace xpud::drivers::cpu {

struct Nothing {
  void Run(WorkerPool&) const {}
  Nothing Keep() const { return *this; }
};

// A launch whose arguments are its own.
class KeptLaunch {
 public:
  KeptLaunch(const EntryPoint& entry, const void* const* arguments)
      : function_(entry.host), arguments_(entry.argument_sizes, arguments) {}
  // With groups read at execution where `indirect` is not null.
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

  void Run(WorkerPool& pool) const {
    pool.Run(entry.host, arguments, indirect == nullptr ? groups : *indirect);
  }
  KeptLaunch Keep() const { return std::move(KeptLaunch(entry, arguments).With(groups, indirect)); }
};

// Several launches, of which the first *count run, each with its own group counts: both read at execution.
struct LaunchMultiple {
  std::shared_ptr<const std::vector<KeptLaunch>> launches;
  const uint32_t* count;
  void Run(WorkerPool& pool) const;
  LaunchMultiple Keep() const { return *this; }
};

struct Copy {
  std::byte* destination;
  const std::byte* source;
  size_t size;
  void Run(WorkerPool& pool) const;
  Copy Keep() const { return *this; }
};

struct CopyRegion {
  RegionCopy region;
  void Run(WorkerPool& pool) const;
  CopyRegion Keep() const { return *this; }
};

struct KeptFill {
  std::byte* destination;
  std::vector<std::byte> pattern;
  size_t size;
  void Run(WorkerPool& pool) const;
};

struct Fill {
  std::byte* destination;
  const std::byte* pattern;
  size_t pattern_size;
  size_t size;
  void Run(WorkerPool& pool) const;
  KeptFill Keep() const { return {destination, {pattern, pattern + pattern_size}, size}; }
};

struct ResetEvent {
  std::shared_ptr<EventState> event;
  void Run(WorkerPool&) const { event->Reset(); }
  ResetEvent Keep() const { return *this; }
};

struct WriteTimestamp {
  uint64_t* destination;
  void Run(WorkerPool&) const;
  WriteTimestamp Keep() const { return *this; }
};

struct QueryTimestamps {
  std::vector<std::shared_ptr<EventState>> events;
  std::vector<size_t> offsets;  // empty: one after another
  std::byte* destination;
  void Run(WorkerPool&) const;
  QueryTimestamps Keep() const { return *this; }
};

struct WriteValue64 {
  uint64_t* address;
  uint64_t value;
  void Run(WorkerPool&) const { std::atomic_ref<uint64_t>(*address).store(value, std::memory_order_release); }
  WriteValue64 Keep() const { return *this; }
};

}  // namespace xpud::drivers::cpu
