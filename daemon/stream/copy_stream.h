// Runs a session's copies on one device: between host memory and buffers, between buffers, and from buffers
// of another device. A breach of protocol is returned; a copy that is refused raises an error on its queue
// and poisons its target. REQUIRES: the lane's thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "daemon/handles/buffer_table.h"
#include "daemon/handles/host_memory.h"
#include "daemon/stream/completion.h"
#include "daemon/stream/device_state.h"
#include "daemon/stream/host_access.h"
#include "daemon/stream/lends.h"
#include "daemon/stream/memory.h"
#include "daemon/stream/op.h"
#include "daemon/stream/queue_errors.h"
#include "daemon/stream/queue_table.h"
#include "daemon/stream/rerun.h"
#include "daemon/tenant/counters.h"
#include "proto/transport/transport.h"

namespace xpud::stream {

class CopyStream {
 public:
  CopyStream(DeviceState& state, transport::ServerTransport& transport, const HostAccess& access,
             handles::BufferTable& buffers, handles::DeviceHostMemories& memories, QueueErrors& errors,
             Memory& memory, Rerun& rerun, SessionCounters& counters, Lends& lends, Borrows& borrows)
      : state_(state),
        transport_(transport),
        access_(access),
        buffers_(buffers),
        memories_(memories),
        errors_(errors),
        memory_(memory),
        rerun_(rerun),
        counters_(counters),
        lends_(lends),
        borrows_(borrows) {}

  absl::StatusOr<Outcome> Upload(std::span<const std::byte> bytes, Queue& queue, Command& command);
  absl::StatusOr<Outcome> UploadInline(std::span<const std::byte> bytes, Queue& queue, Command& command);
  absl::StatusOr<Outcome> Download(std::span<const std::byte> bytes, Queue& queue, Command& command);
  absl::StatusOr<Outcome> Copy(std::span<const std::byte> bytes, Queue& queue, Command& command);
  absl::StatusOr<Outcome> Lend(std::span<const std::byte> bytes, Queue& queue, Command& command);
  // `source`: the lane of the device that the command names.
  absl::StatusOr<Outcome> CopyFrom(const wire::CopyFromCommand& copy, uint32_t source, Queue& queue,
                                   Command& command);

 private:
  // `append` has the device copy to the address that it is given.
  absl::StatusOr<Outcome> UploadTo(wire::Handle target, uint64_t offset, uint64_t bytes, Queue& queue,
                                   Command& command, absl::FunctionRef<absl::Status(std::byte*)> append);
  // Whether a copy would write what another device copies. Then it has to wait.
  bool WritesLent(const absl::StatusOr<std::byte*>& target, uint64_t bytes, Command& command) const;
  // The error of poison, as another device gets it.
  absl::Status ErrorOf(const memory::Allocation& poisoned) const;
  // Whether what a copy uses is on the device, and a block for `target` alone was taken if others have its
  // block, too: see Memory::TakeOwn. `source` or `target` may be null. Then it stays there. `fills`: the copy
  // writes every byte of the target.
  absl::StatusOr<bool> Hold(const handles::Buffer* source, handles::Buffer* target, bool fills, Queue& queue,
                            Command& command);
  // Of merged memory, for Hold.
  absl::StatusOr<bool> TakeOwn(const handles::Buffer* source, handles::Buffer* target, bool fills,
                               Queue& queue, Command& command);
  // Ensures that `target` may be written: what is under way may run again, and nobody else has its block.
  absl::Status PrepareWrite(handles::Buffer& target, Queue& queue, const Command& command);
  // Returns the part of a buffer that a copy names.
  static absl::StatusOr<std::byte*> PartOf(handles::Buffer* buffer, uint64_t offset, uint64_t bytes,
                                           const Queue& queue, Command& command);
  // Raises the error of poison that a copy would read, and poisons `target` (or null). Returns whether there
  // is none.
  bool MayRead(const handles::Buffer* source, handles::Buffer* target, const Queue& queue,
               const Command& command);
  // Returns the device's address of a place in staging or host memory.
  absl::StatusOr<std::byte*> HostPart(const wire::HostPlace& place, uint64_t bytes, const Queue& queue);
  // Records the result of a copy that would have written `target` (or null) from `source` (null: host memory,
  // or another device).
  void Finish(const absl::Status& status, handles::Buffer* source, handles::Buffer* target, uint64_t bytes,
              Completion::Way way, const Queue& queue, const Command& command);

  DeviceState& state_;
  transport::ServerTransport& transport_;
  const HostAccess& access_;
  handles::BufferTable& buffers_;
  handles::DeviceHostMemories& memories_;
  QueueErrors& errors_;
  Memory& memory_;
  Rerun& rerun_;
  SessionCounters& counters_;
  Lends& lends_;
  Borrows& borrows_;
};

}  // namespace xpud::stream
