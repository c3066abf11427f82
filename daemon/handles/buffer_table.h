// The buffers of one session on one device, found by handle. A client's id and generation are never trusted:
// a stale or invented handle is not found. The table grows by pieces and never shrinks, because generations
// outlive their buffers; buffers do not move. REQUIRES: the lane's thread.
#pragma once

#include <cstdint>
#include <functional>
#include <type_traits>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "daemon/handles/table_space.h"
#include "daemon/memory/allocation.h"
#include "daemon/memory/shared_memory.h"
#include "proto/base/mapping.h"
#include "proto/wire/commands.h"

namespace xpud::handles {

struct Buffer {             // all zeros: a free slot
  uint32_t generation = 0;  // 0: the slot is free
  uint32_t last_generation = 0;
  uint64_t bytes = 0;   // as the client asked for
  uint64_t queues = 0;  // bit q: queue q of the session has used it
  // The last commands of the session that read and wrote it by this handle (devices whose work can be run
  // again). Where several sessions share the memory, each knows only its own: a session that writes what
  // another one uses, without waiting for it, is a race, whose result is either's. So it is on CUDA.
  uint64_t last_read = 0, last_write = 0;
  uint64_t input_of = 0;  // the last command that had it among its inputs
  memory::Allocation own;

  // The memory that it names.
  memory::Allocation& allocation() { return own.is_shared ? *own.block.shared : own; }
  const memory::Allocation& allocation() const { return own.is_shared ? *own.block.shared : own; }
  // Command `sequence` writes it.
  void MarkWritten(uint64_t sequence, uint64_t content) {
    memory::Allocation& written = allocation();
    written.written = true;
    written.content = content;
    last_write = sequence;
  }
  // From now on it names `shared`. The block stays as it was, but for its owner.
  void Name(memory::SharedAllocation& shared) {
    own.block = {shared.block.address, shared.block.bytes, nullptr, {.shared = &shared}};
    own.is_shared = true;
  }
};
static_assert(std::is_trivially_copyable_v<Buffer> && sizeof(Buffer) == 96);

class BufferTable final : memory::PoisonList {
 public:
  // Takes room from `space`, and returns it at the end. `session`: whose errors poison; not 0 if memory is
  // shared.
  BufferTable(TableSpace& space, Tenant tenant, uint64_t session = 0)
      : space_(space), tenant_(std::move(tenant)), session_(session) {}
  // What the session has poisoned in place in shared memory is usable again.
  ~BufferTable();
  BufferTable(const BufferTable&) = delete;
  BufferTable& operator=(const BufferTable&) = delete;

  // Whether a new buffer may have this handle; then there is a slot for it. An error is a breach of protocol:
  // the id is neither the next nor a free one, its generation is not larger than before, or there are too
  // many buffers.
  absl::Status Admit(wire::Handle handle);
  // Returns the slot for a new buffer. REQUIRES: its handle was admitted.
  Buffer* Insert(wire::Handle handle);
  // Returns nullptr if there is no such buffer.
  Buffer* Find(wire::Handle handle) {
    if (handle.id - 1 >= size_ || handle.generation == 0) return nullptr;
    Buffer& buffer = At(handle.id);
    return buffer.generation != handle.generation ? nullptr : &buffer;
  }
  // Returns the slot of an id, which may be free; nullptr beyond those that were used.
  Buffer* Slot(uint32_t id) { return id - 1 >= size_ ? nullptr : &At(id); }
  void Erase(Buffer& buffer) {
    buffer.generation = 0;
    --live_;
  }
  void ForEach(absl::FunctionRef<void(Buffer&)> visit);
  // A command that would have written a buffer's memory was not run, or had a bad index. Keeps earlier
  // poison.
  void PoisonSkipped(memory::Allocation& allocation, memory::Fault fault);
  // The memory has neither its old contents nor new ones. Keeps earlier poison.
  void Spoil(memory::Allocation& allocation, memory::Fault fault);
  // `shared` has the block of the buffer, which names it from now on.
  void Share(Buffer& buffer, memory::SharedAllocation& shared);
  // Returns the memory if another session has poisoned it: its cause is not a number of this one's errors.
  const memory::SharedAllocation* PoisonedByAnother(const memory::Allocation& poisoned) const {
    if (!poisoned.is_shared) return nullptr;
    const auto& shared = static_cast<const memory::SharedAllocation&>(poisoned);
    return shared.poisoned_by == session_ ? nullptr : &shared;
  }
  // Says of which error a cause is the number. Others who share poisoned memory get it.
  void ExplainCauses(std::function<absl::Status(uint32_t cause)> error_of) {
    error_of_ = std::move(error_of);
  }
  // Ends kInPlace of what commands of `reported.queue` poisoned, or `reported.cause` did: the client has seen
  // the error.
  void ForgiveInPlace(memory::Fault reported);
  size_t live() const { return live_; }

 private:
  static constexpr uint32_t kPiece = 4096;  // buffers
  static constexpr uint32_t kStep = 128;    // part of a piece for which room is taken: some pages

  Buffer& At(uint32_t id) {
    return reinterpret_cast<Buffer*>(pieces_[(id - 1) / kPiece].data())[(id - 1) % kPiece];
  }
  absl::Status Grow();
  void SetPoison(memory::Allocation& allocation, memory::Poison kind, memory::Fault fault);
  void Unlist(memory::SharedAllocation& allocation) override;

  TableSpace& space_;
  const Tenant tenant_;
  const uint64_t session_;
  std::function<absl::Status(uint32_t)> error_of_ = [](uint32_t) { return absl::UnknownError(""); };
  std::vector<Mapping> pieces_;
  uint32_t taken_ = 0;  // of the space
  uint32_t size_ = 0;   // ids that were used so far, from 1 on: 0 is null
  size_t live_ = 0;
  std::vector<memory::Allocation*> in_place_;                       // those that are listed
  absl::flat_hash_set<memory::SharedAllocation*> shared_in_place_;  // the same of shared memory
};

}  // namespace xpud::handles
