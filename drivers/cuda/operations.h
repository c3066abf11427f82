// The operations of commands on a CUDA device: each enqueues on a stream. See drivers/frontend/operations.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "drivers/cuda/event.h"
#include "drivers/cuda/graph.h"
#include "drivers/cuda/module.h"
#include "drivers/cuda/stream.h"
#include "drivers/frontend/operations.h"

namespace xpud::drivers::cuda {

// Enqueues a launch, or calls a HOST kernel, which enqueues its own work.
ze_result_t EnqueueLaunch(const Stream& stream, const Entry& entry, const ze_group_count_t& groups,
                          const xpud_group_size_t& group_size, const void* const* arguments);

// A launch that owns its arguments.
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
};

struct LaunchGraph {
  std::shared_ptr<GraphExec> exec;
};

inline KeptLaunch Keep(const Launch& launch) {
  return {launch.kernel, launch.arguments, launch.groups, launch.group_size};
}

inline LaunchGraph Keep(const LaunchGraph& launch) { return launch; }

// These functions enqueue an operation.
inline ze_result_t Run(const Nothing&, const Stream&) { return ZE_RESULT_SUCCESS; }
inline ze_result_t Run(const KeptLaunch& launch, const Stream& stream) { return launch.Run(stream); }
inline ze_result_t Run(const Launch& launch, const Stream& stream) {
  return EnqueueLaunch(stream, launch.kernel.entry(), launch.groups, launch.group_size, launch.arguments);
}
inline ze_result_t Run(const LaunchGraph& launch, const Stream& stream) {
  return stream.device().Check(cu.cuGraphLaunch(launch.exec->handle(), stream.handle()));
}
ze_result_t Run(const Copy& copy, const Stream& stream);
ze_result_t Run(const CopyRegion& copy, const Stream& stream);
ze_result_t Run(const Fill& fill, const Stream& stream);
inline ze_result_t Run(const KeptFill& fill, const Stream& stream) { return Run(fill.borrowed(), stream); }
ze_result_t Run(const ResetEvent<EventState>& reset, const Stream& stream);
ze_result_t Run(const WriteTimestamp& write, const Stream& stream);
ze_result_t Run(const QueryTimestamps<EventState>& query, const Stream& stream);
ze_result_t Run(const WriteValue64& write, const Stream& stream);

}  // namespace xpud::drivers::cuda
