// The buffers of one session on one device, found by handle. A client's id and generation are never trusted:
// a stale or invented handle is not found. The table grows by pieces and never shrinks, because generations
// outlive their buffers; buffers do not move. REQUIRES: the lane's thread.
#pragma once

#include <cstdint>
#include <type_traits>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "daemon/handles/table_space.h"
#include "daemon/memory/allocation.h"
#include "proto/base/mapping.h"
#include "proto/wire/commands.h"

namespace xpud::handles {

struct Buffer {             // all zeros: a free slot
  uint32_t generation = 0;  // 0: the slot is free
  uint32_t last_generation = 0;
  uint64_t bytes = 0;   // as the client asked for
  uint64_t queues = 0;  // bit q: queue q of the session has used it
  memory::Allocation allocation;
};
static_assert(std::is_trivially_copyable_v<Buffer> && sizeof(Buffer) == 96);

class BufferTable {
 public:
  // Takes room from `space`, and returns it at the end.
  BufferTable(TableSpace& space, Tenant tenant) : space_(space), tenant_(std::move(tenant)) {}
  ~BufferTable() { space_.Return(tenant_, taken_); }
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
  void Erase(Buffer& buffer) {
    buffer.generation = 0;
    --live_;
  }
  void ForEach(absl::FunctionRef<void(Buffer&)> visit);
  // A command that would have written a buffer's memory was not run, or had a bad index. Keeps earlier
  // poison.
  void PoisonSkipped(memory::Allocation& allocation, memory::Fault fault);
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

  TableSpace& space_;
  const Tenant tenant_;
  std::vector<Mapping> pieces_;
  uint32_t taken_ = 0;  // of the space
  uint32_t size_ = 0;   // ids that were used so far, from 1 on: 0 is null
  size_t live_ = 0;
  std::vector<memory::Allocation*> in_place_;  // those that are listed
};

}  // namespace xpud::handles
