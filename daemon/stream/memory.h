// A device session's memory: takes blocks for its buffers within its credit, and gives them back once no
// queue uses them. REQUIRES: the lane's thread.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/handles/buffer_table.h"
#include "daemon/handles/host_memory.h"
#include "daemon/memory/pool.h"
#include "daemon/stream/announcer.h"
#include "daemon/stream/device_state.h"
#include "daemon/stream/queue_table.h"
#include "daemon/stream/rerun.h"
#include "daemon/tenant/tenant.h"
#include "proto/base/out_of_memory.h"
#include "proto/transport/transport.h"

namespace xpud::stream {

class Memory {
 public:
  Memory(DeviceState& state, uint32_t device, const Tenant& tenant, transport::ServerTransport& transport,
         QueueTable& queues, Announcer& announcer, const Rerun& rerun, const uint64_t& busy_queues);
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
  // Frees a buffer's block once the queues that used it have completed their commands.
  void Free(const handles::Buffer& buffer);
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
  uint64_t allocated_bytes() const { return allocated_; }
  uint64_t peak_bytes() const { return peak_; }

 private:
  // A block or a host memory that several queues used.
  struct Deferred {
    memory::Block block;
    std::shared_ptr<handles::DeviceHostMemories::Access> host;  // null: the block
    uint64_t queues;
    std::array<uint64_t, wire::kMaxQueues> marks;  // sequences
  };

  void Defer(uint64_t queues, const memory::Block& block,
             std::shared_ptr<handles::DeviceHostMemories::Access> host);
  void Charge(int64_t bytes);

  DeviceState& state_;
  const uint32_t device_;  // for messages
  transport::ServerTransport& transport_;
  QueueTable& queues_;
  Announcer& announcer_;
  const Rerun& rerun_;
  const uint64_t& busy_queues_;
  memory::Ledger::Account& account_;
  std::vector<Deferred> deferred_;
  uint64_t allocated_ = 0, peak_ = 0;
  bool idle_ = true;
};

}  // namespace xpud::stream
