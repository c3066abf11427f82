// One client's session: takes commands from its transport, checks them, and has them executed. Owned by the
// engine, which alone calls it. Nothing that a client sends can touch another session: handles are looked up
// in this session's own table, every view is checked against its buffer, and a breach of protocol closes this
// session only.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "daemon/session/buffer_table.h"
#include "daemon/session/device_state.h"
#include "daemon/session/host_memories.h"
#include "daemon/session/in_flight.h"
#include "daemon/session/queue_wait.h"
#include "daemon/tenant/counters.h"
#include "daemon/tenant/tenant.h"
#include "proto/transport/layout.h"
#include "proto/transport/transport.h"
#include "proto/wire/decode.h"

namespace xpud::session {

// Who is at the other end, as the kernel says.
struct Peer {
  int32_t pid = 0;
  Tenant tenant;
  std::string name;  // what the client calls itself
};

class Session {
 public:
  Session(uint64_t id, Peer peer, std::unique_ptr<transport::ServerTransport> transport,
          std::span<DeviceState> devices, uint64_t host_memory_limit, TableSpace& tables);
  // Gives everything back; nothing is under way, or the device is gone.
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // Makes the default queues, one a device.
  absl::Status Open();

  enum class Progress {
    kIdle,     // no commands
    kWorked,   // did some; call again
    kStalled,  // the next command waits for a kernel to compile, for another queue, or for its device
  };
  // Whether a device works for it, or is to take its next command, so that it must be Run again soon.
  bool under_way() const { return (busy_queues_ | dirty_queues_) != 0 || awaits_device_; }
  // Takes no more commands. True once nothing is under way; call it again until then.
  bool End();
  // The device will do nothing more for this session.
  void Abandon(uint32_t device);

  // As HostMemories::Share.
  absl::Status ShareHostMemory(uint32_t id, uint64_t devices, transport::ClientMemory memory,
                               const HostMemories::Done& done) {
    return host_.Share(id, devices, std::move(memory), done);
  }

  // Runs commands until there are none or about `slice_ns` have passed. An error is a breach of protocol: the
  // caller closes the session.
  absl::StatusOr<Progress> Run(uint64_t slice_ns);
  // Nobody looked for commands while the engine slept, and nobody had to: the first one woke it.
  void Awake(uint64_t now) {
    transport_->Awake();
    if (batch_.empty()) queue_wait_.SawNone(now);
  }
  // It is not run for another session's sake.
  void HoldBack() { queue_wait_.HeldBack(); }
  // Takes what devices have done since. Run does so, too.
  void Poll() {
    if (busy_queues_ != 0) TakeCompletions();
  }
  // Where its last command went.
  uint32_t current_device() const { return queues_[current_queue_].device; }

  uint64_t id() const { return id_; }
  const Peer& peer() const { return peer_; }
  const SessionCounters& counters() const { return counters_; }
  uint64_t peak_bytes() const { return peak_bytes_; }
  const DeviceWork& work(uint32_t device) const { return work_[device]; }
  uint64_t allocated_bytes(uint32_t device) const { return allocated_[device]; }
  memory::Ledger::Account& account(uint32_t device) const { return *accounts_[device]; }
  uint64_t host_memory_bytes() const { return host_.total().bytes; }
  size_t buffer_count() const { return buffers_.live(); }
  int queue_count() const;
  uint64_t opened_ns() const { return opened_ns_; }
  // The last Run that worked, on the steady clock.
  uint64_t slice_began_ns() const { return slice_began_ns_; }
  uint64_t slice_ended_ns() const { return slice_ended_ns_; }
  transport::ServerTransport& transport() { return *transport_; }

 private:
  // Commands that a queue of an asynchronous device has under way: no more than a stream takes before the
  // append blocks.
  static constexpr uint64_t kMaxInFlight = 512;
  struct Queue {
    std::unique_ptr<executor::DeviceQueue> device_queue;
    uint32_t device = 0;
    uint64_t submitted = 0;               // sequence of the last command
    uint64_t written = 0;                 // what the completed counter was last told to become
    uint64_t completed = 0;               // what it became (asynchronous devices)
    bool updates = false;                 // the last command changed memory in place
    bool error_raised = false;            // and not yet cleared by the client
    uint64_t error_word = 0;              // where kernels of a synchronous device report bad index contents
    std::unique_ptr<InFlight> in_flight;  // null for a synchronous device
    // Of an asynchronous device: work that was sent, cut by announcements.
    struct Work {
      uint64_t last;     // sequence
      uint64_t sent_ns;  // its first command
      uint64_t commands;
    };
    std::deque<Work> announced;
    uint64_t unannounced = 0;                               // commands
    uint64_t under_way = 0, most_under_way = kMaxInFlight;  // commands
    uint64_t sent_ns = 0;   // of the first command that is not announced; 0: there is none
    double command_ns = 0;  // what commands take, about
  };
  // A free that waits for several queues that used the buffer, or host memory.
  struct DeferredFree {
    memory::Block block;
    uint32_t device;
    std::shared_ptr<HostMemories::Memory> host;  // or null: the block
    uint64_t queues;
    std::array<uint64_t, wire::kMaxQueues> marks;
  };
  enum class Outcome {
    kDone,
    kStalled,
    kStopped  // in its midst, so that others get their turn: it is run again, and goes on
  };

  absl::StatusOr<Outcome> RunCommand(std::span<const std::byte> bytes, const wire::CommandHeader& header);
  absl::StatusOr<Outcome> Allocate(std::span<const std::byte> bytes);
  absl::Status Free(std::span<const std::byte> bytes);
  absl::StatusOr<Outcome> Reserve(std::span<const std::byte> bytes);
  absl::StatusOr<Outcome> Execute(std::span<const std::byte> bytes, uint32_t queue_id);
  // What was resolved and checked, or stopped before.
  absl::StatusOr<Outcome> LaunchChecked(Queue& queue, kernels::OpCall call);
  absl::StatusOr<Outcome> PlanAndLaunch(Queue& queue, const kernels::OpCall& call);
  Outcome Refuse(Queue& queue, const absl::Status& why, const kernels::OpCall* call);
  void FreeWorkspace(Queue& queue);
  absl::Status Upload(std::span<const std::byte> bytes);
  absl::Status UploadInline(std::span<const std::byte> bytes);
  // `append` has the device copy to the address that it is given.
  absl::Status UploadTo(wire::Handle target, uint64_t offset, uint64_t bytes,
                        absl::FunctionRef<absl::Status(std::byte*)> append);
  absl::Status Download(std::span<const std::byte> bytes);
  absl::Status ReleaseMemory(std::span<const std::byte> bytes);
  absl::Status Copy(std::span<const std::byte> bytes);
  absl::Status CreateQueue(std::span<const std::byte> bytes);
  absl::StatusOr<Outcome> DestroyQueue(std::span<const std::byte> bytes);
  absl::Status Timestamp(std::span<const std::byte> bytes);
  absl::StatusOr<Outcome> WaitForQueue(std::span<const std::byte> bytes);
  absl::Status ClearError(std::span<const std::byte> bytes);

  // Fills operands_ from execute_; OK, or why the op is refused.
  absl::Status ResolveOperands(uint32_t queue_id);
  absl::Status ResolveTensor(const wire::DecodedOperand& from, kernels::Operand& to, Buffer*& buffer,
                             uint32_t queue_id);
  kernels::OpCall Call() const;
  bool ReadsPoison() const;
  void PoisonOutputs();
  void MarkWritten(Buffer& buffer);
  void PoisonSkipped(Buffer& buffer);  // a command that would have written it was not run
  void MarkOutputsWritten();
  void CheckErrorWord(Queue& queue, const kernels::OpCall& call);
  void RaiseIndexError(Queue& queue, uint32_t queue_id, uint64_t sequence, uint64_t word,
                       const std::string& command);
  // The part of a buffer that a copy names, or why not.
  absl::StatusOr<std::byte*> Part(Buffer* buffer, uint64_t offset, uint64_t bytes, uint32_t queue_id);
  // In staging or host memory, as the queue's device finds it.
  absl::StatusOr<std::byte*> HostPart(const wire::HostPlace& place, uint64_t bytes, uint32_t queue_id);
  std::byte* StagingOn(uint32_t device) const;
  // Records what became of a copy; `target` is the buffer that it writes, or null.
  void FinishCopy(const absl::Status& status, Buffer* target, uint64_t bytes);

  // The user's error: recorded on the queue, seen at its next sync.
  void Raise(Queue& queue, uint32_t queue_id, const absl::Status& error) {
    Raise(queue, queue_id, sequence_ + 1, error);
  }
  void Raise(Queue& queue, uint32_t queue_id, uint64_t sequence, const absl::Status& error);
  void ReleaseBuffer(Buffer& buffer);
  void ReleaseDeferred();
  void ChargeMemory(uint32_t device, int64_t bytes);
  // Sees to so much credit in all; nothing, or why there is none. Unavailable: the device's executor is being
  // replaced.
  absl::StatusOr<std::optional<MemoryShortage>> Credit(uint32_t device, uint64_t wanted);
  void SetIdle(bool idle);
  absl::Status PublishCompletions();
  bool ShouldPublish(uint64_t now) const;
  // Has the device say when it has done what the queue was given so far.
  absl::Status Announce(uint32_t queue_id);
  // What asynchronous devices have done since.
  void TakeCompletions();
  // The device time of what has been done.
  void CountTime(Queue& queue, uint64_t done, uint64_t now);
  void CountOccupied(uint32_t device);
  // Memory for the next command; ResourceExhausted, or Unavailable: there may be some later.
  absl::StatusOr<memory::Block> TakeMemory(Queue& queue, uint64_t bytes);
  absl::StatusOr<memory::Block> TakeCredited(Queue& queue, uint64_t bytes);
  absl::StatusOr<memory::Block> TakePoolMemory(Queue& queue, uint64_t bytes);
  void FreeMemory(const Buffer& buffer);
  // Frees `block`, or `host`, once those queues have done what they were given so far.
  void Defer(uint64_t queues, const memory::Block& block, uint32_t device,
             std::shared_ptr<HostMemories::Memory> host);
  absl::Status ShareMemory(uint32_t device);
  void Attach(uint32_t queue_id);
  // Devices whose work can be run again: keeps the commands between two announcements such that running them
  // again gives what the first run gave, as far as it can be.
  void RecordUses();
  absl::Status GuardOutputs(uint32_t queue_id);
  absl::Status GuardWrite(uint32_t queue_id, Buffer& buffer);
  void HandleTrouble(uint32_t queue_id);

  const uint64_t id_;
  const Peer peer_;
  const uint64_t opened_ns_;
  const std::unique_ptr<transport::ServerTransport> transport_;
  const std::span<DeviceState> devices_;

  BufferTable buffers_;
  std::array<Queue, wire::kMaxQueues> queues_;
  uint64_t open_queues_ = 0;   // bit q
  uint64_t dirty_queues_ = 0;  // bit q: has commands whose completion is not yet announced
  uint64_t dirty_since_ns_ = 0, dirty_commands_ = 0;
  bool client_waits_ = false;   // seen since the last announcement
  bool awaits_device_ = false;  // the next command's queue could not take it; it wakes nobody once it can
  bool ending_ = false;         // takes no more commands
  bool idle_ = true;            // no command under way or to come, as far as is known
  uint64_t busy_queues_ = 0;    // bit q: an asynchronous device has work of it
  HostMemories host_;
  std::vector<DeferredFree> deferred_;
  // Of asynchronous devices: access to the transport's memory, and the words that they report in.
  struct SharedMemory {
    std::unique_ptr<executor::HostMemory> staging, completion, words;
  };
  std::array<SharedMemory, transport::kMaxDevices> shared_;
  std::array<uint64_t, transport::kMaxDevices> allocated_{};
  std::array<memory::Ledger::Account*, transport::kMaxDevices>
      accounts_{};                                         // from the first to the last moment
  std::array<DeviceWork, transport::kMaxDevices> work_{};  // of asynchronous devices
  SessionCounters counters_;
  uint64_t peak_bytes_ = 0;

  std::span<const std::byte> batch_;  // commands taken from the transport and not yet run
  QueueWait queue_wait_;
  uint64_t slice_began_ns_ = 0, slice_ended_ns_ = 0;
  uint64_t sequence_ = 0;  // of the last command that was run
  uint32_t current_queue_ = 0;

  // Scratch of the command being run.
  bool heavy_ = false;  // it may have taken long: look at the clock
  bool long_ = false;   // the device may take long: announce it by itself
  wire::DecodedExecute execute_;
  uint32_t inputs_ = 0;  // of operands_: also those that the client left out
  std::vector<kernels::Operand>
      operands_;                          // outputs, then inputs; what is behind them is of earlier commands
  std::vector<Buffer*> operand_buffers_;  // theirs; null for what is no tensor
  kernels::LaunchList launches_;
  std::vector<executor::MemoryUse> uses_;
  std::vector<memory::Block> workspace_;
  bool stopped_ = false;  // the command is in its midst, and all of these are still its own
};

}  // namespace xpud::session
