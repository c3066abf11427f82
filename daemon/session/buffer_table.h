// The buffers of one session, found by handle. A client's id and generation are never trusted: a stale or
// invented handle is not found. The engine thread only.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "daemon/memory/pool.h"
#include "proto/base/checks.h"
#include "proto/wire/commands.h"

namespace xpud::session {

// Why a buffer's contents must not be used.
enum class Poison : uint8_t {
  kNone,
  kInPlace,   // a command that would have changed it was skipped; the old contents stand once the error is
              // reported
  kFresh,     // never written: what should have made it failed; until overwritten
  kNoStorage  // its allocation failed
};

struct Buffer {
  uint32_t generation = 0;  // 0: the slot is free
  uint32_t last_generation = 0;
  Poison poison = Poison::kNone;
  bool written = false;
  uint32_t device = 0;
  uint64_t bytes = 0;    // as asked for
  uint64_t content = 0;  // changes with every write; never reused within the daemon
  uint64_t queues = 0;   // bit q: queue q has used it
  // The last commands that read and wrote it (devices whose work can be run again).
  uint64_t last_read = 0, last_write = 0;
  memory::Block block;
};

class BufferTable {
 public:
  // Whether a new buffer may have this handle. Not if the id is not the next or a free one, or its generation
  // is not larger than before: that is a breach of protocol.
  bool Accepts(wire::Handle handle) const;
  // The slot for a new buffer, or null if it is not accepted.
  Buffer* Insert(wire::Handle handle);
  // The buffer, or null.
  Buffer* Find(wire::Handle handle) {
    if (Refused(handle.id >= slots_.size() || handle.generation == 0)) return nullptr;
    Buffer& buffer = slots_[handle.id];
    return Refused(buffer.generation != handle.generation) ? nullptr : &buffer;
  }
  void Erase(Buffer& buffer) {
    buffer.generation = 0;
    --live_;
  }
  void ForEach(absl::FunctionRef<void(Buffer&)> visit);
  size_t live() const { return live_; }

 private:
  std::vector<Buffer> slots_{1};  // id 0 is null
  size_t live_ = 0;
};

}  // namespace xpud::session
