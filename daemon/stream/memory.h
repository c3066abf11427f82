// A device session's memory: takes blocks for its buffers within its credit, and gives them back once no
// queue uses them. REQUIRES: the lane's thread.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/handles/buffer_table.h"
#include "daemon/handles/host_memory.h"
#include "daemon/memory/pool.h"
#include "daemon/stream/announcer.h"
#include "daemon/stream/device_state.h"
#include "daemon/stream/lends.h"
#include "daemon/stream/queue_table.h"
#include "daemon/stream/rerun.h"
#include "daemon/tenant/tenant.h"
#include "proto/base/out_of_memory.h"
#include "proto/transport/transport.h"

namespace xpud::stream {

class Memory {
 public:
  // `user`: the session; it ends later.
  Memory(DeviceState& state, uint32_t device, const Tenant& tenant, memory::User& user,
         transport::ServerTransport& transport, QueueTable& queues, Announcer& announcer, const Rerun& rerun,
         const uint64_t& busy_queues, const Lends& lends);
  // Frees what is deferred. REQUIRES: the device does nothing more for the session.
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  // Takes a block for a buffer and charges it. `sequence`: of the command that allocates. Returns
  // ResourceExhausted, or Unavailable if memory may become free. Clients ask (Credit) before they exceed
  // their credit, so that this fails for those that do not, and where an idle session lost credit.
  absl::StatusOr<memory::Block> Allocate(Queue& queue, uint64_t sequence, uint64_t bytes);
  // Takes a block that is not charged, for the workspace of a command. Returns as Allocate.
  absl::StatusOr<memory::Block> Take(Queue& queue, uint64_t sequence, uint64_t bytes);
  // Whether commands must hold what they use, because memory of the tenant leaves the device. Not for long:
  // ask for each command.
  bool is_watched() const { return account_.arena->is_watched(); }
  // Whether command `sequence` of the queue may use these blocks now; otherwise they are brought. An error
  // says that they never fit together. REQUIRES: is_watched().
  absl::StatusOr<bool> Hold(const Queue& queue, uint64_t sequence,
                            std::span<const memory::Residency::Operand> blocks);
  // A command that waits will use the block, so many commands later.
  void Expect(const memory::Block& block, uint64_t commands_ahead) {
    state_.pool->residency().Expect(*account_.arena, block.address, commands_ahead);
  }
  // Returns the chunk of a block, exported so that other devices can map it. REQUIRES: it is on the device.
  absl::StatusOr<memory::Chunk*> Export(const memory::Block& block);
  // Frees a buffer's block, or its reference to shared memory, once the queues that used it have completed
  // their commands, and nothing of it is lent.
  void Free(const handles::Buffer& buffer);

  // Memory that is merged (memory::Pool::Merge), and copied before one of its buffers is written.
  // Whether the device may still write the buffer.
  bool IsBeingWritten(const handles::Buffer& buffer) {
    return IsUnfinished(buffer.queues & queues_.open(), buffer.last_write);
  }
  // Whether what a buffer of the session's own holds is complete, and usable.
  bool IsSettled(const handles::Buffer& buffer);
  // An upload has reached the end of the buffer.
  void Uploaded(wire::Handle handle, const handles::Buffer& buffer) {
    if (buffer.bytes < memory::Pool::kMinMergedBytes || state_.merger == nullptr) return;
    if (uploads_.size() == kMaxUploads) return;
    uploads_.push_back(handle);
    state_.merger->AddUpload();
  }
  // Of these, in their order, those that the Merger has not looked at.
  std::deque<wire::Handle>& uploads() { return uploads_; }
  // The buffer's block is that of others too. `former`: the block that it had; nullopt: still has. It is
  // freed once the queues that used the buffer have completed their commands.
  void Merged(handles::Buffer& buffer, const std::optional<memory::Block>& former);
  // Whether a command must ask for what it uses and writes, with these functions, before it does.
  bool has_merged() const { return has_merged_; }
  // Whether the buffer's block is being copied in another queue, as far as is known; then the command waits
  // for that. Ensures that the copy is reported.
  absl::StatusOr<bool> AwaitsCopy(const handles::Buffer& buffer, const Queue& queue);
  // A buffer that command `sequence` writes gets a block of its own, if others have it too. Returns as
  // Allocate; then none has got one for the command. What follows is Part or Forget. `fills`: the command
  // writes every byte.
  absl::Status TakeOwn(Queue& queue, uint64_t sequence, handles::Buffer& buffer, bool fills);
  struct Parting {
    handles::Buffer* buffer;
    memory::Block own;
    bool copies;
  };
  std::span<const Parting> partings() const { return partings_; }
  // Appends the copies to the blocks that were taken, which are the buffers' from then on.
  absl::Status Part(Queue& queue, uint64_t sequence);
  // The command does not write now: returns the blocks that were taken.
  void ForgetPartings(Queue& queue, uint64_t sequence);
  // Whether copies for command `sequence` were appended, which has not been submitted yet.
  bool has_copied_for(uint64_t sequence) const { return copied_for_ == sequence; }

  // The session shares memory that it had allocated: it is not charged for the block any more.
  void Shared(const memory::Block& block);
  // The session gets a buffer of shared memory, and its reference. Returns the limit if that exceeds its own
  // quota; then it does not.
  std::optional<MemoryShortage> Attach(const memory::SharedAllocation& allocation);
  // Gives the reference of a buffer back, or a block of its own to the pool. REQUIRES: no queue uses it.
  void Drop(const handles::Buffer& buffer);
  // Work of these queues is lost: what others share of what it was writing is neither old nor new.
  void SpoilUnfinished(handles::BufferTable& buffers, uint64_t queues, memory::Fault fault);
  // Keeps `host` until those queues have completed their commands.
  void Defer(uint64_t queues, std::shared_ptr<handles::DeviceHostMemories::Access> host);
  // Frees what was deferred and is not used any more.
  void ReleaseDeferred();
  bool has_deferred() const { return !deferred_.empty(); }

  // Ensures `wanted` bytes of credit. Returns the shortage on failure, or Unavailable while the device's
  // executor is replaced.
  absl::StatusOr<std::optional<MemoryShortage>> Credit(uint64_t wanted);
  // Returns the limit that leaves the session the least, with what the others use of it and what it holds.
  MemoryShortage NarrowestLimit() const;
  // Whether the session has no command in flight or to come, as far as is known.
  void SetIdle(bool idle);

  memory::Ledger::Account& account() const { return account_; }
  // What the session has, shared memory included.
  uint64_t allocated_bytes() const { return allocated_ + account_.attached(); }
  uint64_t shared_bytes() const { return account_.attached(); }
  uint64_t peak_bytes() const { return peak_; }

 private:
  // A copy of merged memory to a buffer's own block. Other queues use the buffer once it has ended.
  struct Copying {
    const handles::Buffer* buffer;
    uint32_t queue;
    uint64_t sequence;
  };
  // A block, shared memory or a host memory that several queues used.
  struct Deferred {
    memory::Block block;
    memory::SharedAllocation* shared;                           // null: not this
    std::shared_ptr<handles::DeviceHostMemories::Access> host;  // null: not this
    uint64_t last_write;                                        // of the shared memory's buffer
    uint64_t queues;
    std::array<uint64_t, wire::kMaxQueues> marks;  // sequences
  };

  // `sequence`: of the command of `queue` that is being run and uses it, too; 0: none does.
  void Defer(Deferred entry, const Queue* queue = nullptr, uint64_t sequence = 0);
  void Release(const Deferred& entry);
  bool IsLent(const Deferred& entry) const;
  // Whether copies to the buffer's own block have ended.
  bool HasEnded(const Copying& copying) const;
  // The session's buffers that are merged have so many bytes more.
  void CountMerged(int64_t bytes);
  // Whether one of the queues has not completed command `sequence`, as far as is known.
  bool IsUnfinished(uint64_t queues, uint64_t sequence);
  void Charge(int64_t bytes);
  void SetAttached(uint64_t bytes);

  DeviceState& state_;
  const uint32_t device_;  // for messages
  transport::ServerTransport& transport_;
  QueueTable& queues_;
  Announcer& announcer_;
  const Rerun& rerun_;
  const uint64_t& busy_queues_;
  const Lends& lends_;
  memory::User& user_;
  memory::Ledger::Account& account_;
  uint64_t holds_since_ns_ = 0;  // a command waits for memory that left; 0: none does
  std::vector<Deferred> deferred_;
  static constexpr size_t kMaxUploads = 4096;
  std::deque<wire::Handle> uploads_;
  uint64_t merged_bytes_ = 0;  // of the session's buffers that are merged
  std::vector<Parting> partings_;
  std::vector<Copying> copying_;
  bool has_merged_ = false;  // there are any, or copies
  uint64_t copied_for_ = 0;  // the last command for which copies were appended
  uint64_t allocated_ = 0, peak_ = 0;
  bool idle_ = true;
};

}  // namespace xpud::stream
