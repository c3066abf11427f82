// What commands do: each enqueues on a stream. An operation borrows its inputs and can Run at once; Keep
// gives a form that owns them and may run any number of times later.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "drivers/cuda/event.h"
#include "drivers/cuda/module.h"
#include "drivers/cuda/stream.h"
#include "drivers/frontend/command_list.h"

namespace xpud::drivers::cuda {

// Enqueues a launch, or has a HOST kernel enqueue what it does.
ze_result_t EnqueueLaunch(const Stream& stream, const Entry& entry, const ze_group_count_t& groups,
                          const xpud_group_size_t& group_size, const void* const* arguments);

struct Nothing {
  ze_result_t Run(const Stream&) const { return ZE_RESULT_SUCCESS; }
  Nothing Keep() const { return *this; }
};

// A launch whose arguments are its own.
class KeptLaunch {
 public:
  KeptLaunch(const CudaKernel& kernel, const void* const* arguments, const ze_group_count_t& groups,
             const xpud_group_size_t& group_size);
  ze_result_t Run(const Stream& stream) const {
    return EnqueueLaunch(stream, entry_, groups_, group_size_, arguments_.pointers());
  }

 private:
  std::shared_ptr<const Code> code_;
  const Entry& entry_;
  Arguments arguments_;
  ze_group_count_t groups_;
  xpud_group_size_t group_size_;
};

struct Launch {
  const CudaKernel& kernel;
  const void* const* arguments;
  ze_group_count_t groups;
  xpud_group_size_t group_size;

  ze_result_t Run(const Stream& stream) const {
    return EnqueueLaunch(stream, kernel.entry(), groups, group_size, arguments);
  }
  KeptLaunch Keep() const { return {kernel, arguments, groups, group_size}; }
};

struct Copy {
  void* destination;
  const void* source;
  size_t size;
  ze_result_t Run(const Stream& stream) const;
  Copy Keep() const { return *this; }
};

struct CopyRegion {
  RegionCopy region;
  ze_result_t Run(const Stream& stream) const;
  ze_result_t RunByRows(const Stream& stream) const;
  CopyRegion Keep() const { return *this; }
};

struct KeptFill {
  void* destination;
  std::vector<std::byte> pattern;
  size_t size;
  ze_result_t Run(const Stream& stream) const;
};

struct Fill {
  void* destination;
  const std::byte* pattern;
  size_t pattern_size;
  size_t size;
  ze_result_t Run(const Stream& stream) const;
  KeptFill Keep() const { return {destination, {pattern, pattern + pattern_size}, size}; }
};

struct ResetEvent {
  std::shared_ptr<EventState> event;
  ze_result_t Run(const Stream& stream) const;
  ResetEvent Keep() const { return *this; }
};

struct WriteTimestamp {
  uint64_t* destination;
  ze_result_t Run(const Stream& stream) const;
  WriteTimestamp Keep() const { return *this; }
};

struct QueryTimestamps {
  std::vector<std::shared_ptr<EventState>> events;
  std::vector<size_t> offsets;  // empty: one after another
  std::byte* destination;
  ze_result_t Run(const Stream& stream) const;
  QueryTimestamps Keep() const { return *this; }
};

struct WriteValue64 {
  uint64_t* address;
  uint64_t value;
  ze_result_t Run(const Stream& stream) const;
  WriteValue64 Keep() const { return *this; }
};

}  // namespace xpud::drivers::cuda
