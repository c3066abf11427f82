// What a stream does so that its unfinished work can be run again after the device's executor was lost.
// Between two fences nobody knows how far the device came, so all commands after the last reported fence run
// again. That gives the same results unless one of them overwrote what an earlier one, or itself, had read
// from before the fence. So there is a fence before such a command, and after the last one of a series of
// updates in place. Chosen once for a session. REQUIRES: the lane's thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "daemon/executor/api/device_queue.h"
#include "daemon/stream/op.h"
#include "daemon/stream/queue_table.h"

namespace xpud::stream {

class Rerun {
 public:
  // `replaceable`: whether a lost executor of the device is replaced.
  static std::unique_ptr<Rerun> Create(bool replaceable);
  virtual ~Rerun() = default;

  // Op `sequence` will be launched: appends a fence if it needs one, and sets uses().
  virtual absl::Status Prepare(Queue& queue, const CheckedOp& op, uint64_t sequence) = 0;
  // The memory that the op uses.
  std::span<const executor::MemoryUse> uses() const { return uses_; }
  // A copy will write the buffer.
  virtual absl::Status PrepareWrite(Queue& queue, const handles::Buffer& buffer) = 0;
  // The fence from which commands may run again, for Completion::Reuse.
  virtual uint64_t ReuseFence(const Queue& queue) const = 0;

 protected:
  std::vector<executor::MemoryUse> uses_;
};

}  // namespace xpud::stream
