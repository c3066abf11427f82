#include "daemon/session/buffer_table.h"

namespace xpud::session {

Buffer* BufferTable::Insert(wire::Handle handle) {
  if (handle.id == 0 || handle.id > slots_.size() || handle.id >= wire::kMaxBuffers) return nullptr;
  if (handle.id == slots_.size()) slots_.emplace_back();
  Buffer& buffer = slots_[handle.id];
  if (buffer.generation != 0 || handle.generation <= buffer.last_generation) return nullptr;
  buffer = Buffer{};
  buffer.generation = buffer.last_generation = handle.generation;
  ++live_;
  return &buffer;
}

void BufferTable::ForEach(absl::FunctionRef<void(Buffer&)> visit) {
  for (Buffer& buffer : slots_) {
    if (buffer.generation != 0) visit(buffer);
  }
}

}  // namespace xpud::session
