#include "daemon/session/buffer_table.h"

#include "proto/base/checks.h"

namespace xpud::session {

bool BufferTable::Accepts(wire::Handle handle) const {
  if (!kChecked) return true;
  if (handle.id == 0 || handle.id > slots_.size() || handle.id >= wire::kMaxBuffers) return false;
  if (handle.id == slots_.size()) return handle.generation != 0;
  const Buffer& buffer = slots_[handle.id];
  return buffer.generation == 0 && handle.generation > buffer.last_generation;
}

Buffer* BufferTable::Insert(wire::Handle handle) {
  if (!Accepts(handle)) return nullptr;
  if (handle.id == slots_.size()) slots_.emplace_back();
  Buffer& buffer = slots_[handle.id];
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
