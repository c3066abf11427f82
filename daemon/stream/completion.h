// How the work of one queue completes. On a synchronous device it is complete when the call that appends it
// returns; an asynchronous one reports later, at the fences that it was asked for. Chosen once, when a queue
// is made. REQUIRES: the lane's thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "daemon/executor/api/device_queue.h"
#include "daemon/handles/buffer_table.h"
#include "daemon/memory/pool.h"
#include "daemon/stream/device_state.h"
#include "daemon/stream/host_access.h"
#include "daemon/stream/lends.h"
#include "daemon/stream/op.h"
#include "daemon/stream/prediction.h"
#include "daemon/stream/queue_errors.h"
#include "daemon/tenant/counters.h"
#include "kernels/api/op_call.h"
#include "proto/transport/transport.h"

namespace xpud::stream {

class Completion {
 public:
  // What it works with; outlives it.
  struct Context {
    DeviceState& state;
    transport::ServerTransport& transport;
    const HostAccess& host;
    handles::BufferTable& buffers;
    QueueErrors& errors;
    SessionCounters& counters;
    DeviceWork& work;
    DeviceTime::Account& time;
    Prediction& prediction;
    uint64_t& busy_queues;  // bit q: queue q has a fence that was not reported yet; Completion keeps it
    uint64_t& notes;        // see Lineage
    Lends& lends;
  };

  // Makes what suits the device.
  static std::unique_ptr<Completion> Create(const Context& context, executor::DeviceQueue& queue,
                                            uint32_t id);
  virtual ~Completion() = default;

  // Whether the queue takes another command. If not, ask again soon: nothing wakes the lane.
  virtual bool HasRoom() const = 0;
  // Command `sequence` was submitted; its first work was sent at `sent_ns`. `takes_long`: the device may be
  // busy with it for long, so its completion is reported by itself.
  virtual absl::Status Submitted(uint64_t sequence, uint64_t sent_ns, bool takes_long) = 0;
  // Appends a fence: the completion of all submitted commands will be reported.
  virtual absl::Status Fence() = 0;
  // Like Fence, at the end of the session: unfinished commands count, and the client hears no more.
  virtual absl::Status LastFence(uint64_t sequence) = 0;
  // Takes what the device has reported. Returns whether more commands have completed.
  virtual bool Poll(uint64_t now_ns) = 0;
  uint64_t submitted() const { return submitted_; }  // sequence of the last command
  uint64_t fenced() const { return fenced_; }        // sequence of the last command before a fence
  uint64_t completed() const { return completed_; }  // sequence of the last command that is known to have

  // Frees a block when command `sequence` has completed.
  virtual void Retire(const memory::Block& block, uint64_t sequence) = 0;
  // Returns a retired block of `bytes` as InFlight::Reuse does.
  virtual std::optional<memory::Block> Reuse(uint64_t bytes, uint64_t fence) = 0;
  // Frees all retired blocks. REQUIRES: the device does nothing more for the queue.
  virtual void FreeRetired() = 0;

  // Returns where the kernels of a command report bad indices, or nullptr while too many commands in flight
  // may report some, or too much depends on them.
  virtual uint64_t* TakeErrorWord(uint64_t sequence, const kernels::OpCall& call) = 0;
  // The command that took the last word was not submitted.
  virtual void ReturnErrorWord(const kernels::OpCall& call) = 0;
  // How long the command, which is launched next, takes at the device's peak rates; 0: not asked.
  virtual uint64_t IdealNs(const kernels::OpCall& call) = 0;
  struct Launch {
    bool takes_long = false;             // whether the device may be busy with it for long
    std::optional<memory::Fault> fault;  // it had a bad index, and its error is raised
  };
  // The command's kernels were launched. REQUIRES: its outputs are not marked as written yet.
  virtual Launch Launched(uint64_t sequence, const CheckedOp& op) = 0;
  // A copy was appended: within the device, from or to host memory, or from another device.
  enum class Way { kWithin, kHost, kPeer };
  virtual void Moved(uint64_t bytes, Way way) = 0;
  // A copy to a buffer was appended; see Lineage::NoteCopy.
  virtual void Copied(uint64_t sequence, handles::Buffer* source, handles::Buffer& target, bool fills) = 0;
  // A part of a buffer was lent; see Lineage::NoteLend.
  virtual void Lent(uint64_t /*sequence*/, handles::Buffer& /*source*/,
                    memory::SharedAllocation& /*contents*/) {}
  // The buffer, which the queue has used, names shared memory from now on.
  virtual void BecameShared(const handles::Buffer&) {}

  virtual absl::Status WriteTimestamp(uint32_t slot) = 0;
  // Charges the time of a turn in which the lane submitted commands of this queue.
  virtual void ChargeTurn(uint64_t began_ns, uint64_t ended_ns) = 0;

 protected:
  Completion(const Context& context, executor::DeviceQueue& queue, uint32_t id)
      : context_(context), queue_(queue), id_(id) {}
  // Appends the write of `submitted_` to `word`.
  absl::Status WriteFence(uint64_t* word);

  const Context context_;
  executor::DeviceQueue& queue_;
  const uint32_t id_;
  uint64_t submitted_ = 0, fenced_ = 0, completed_ = 0;
};

}  // namespace xpud::stream
