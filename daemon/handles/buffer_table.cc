#include "daemon/handles/buffer_table.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"

namespace xpud::handles {

absl::Status BufferTable::Admit(wire::Handle handle) {
  const auto& [id, generation] = handle;
  if (id == 0 || id > size_ + 1 || generation == 0 ||
      (id <= size_ && (At(id).generation != 0 || generation <= At(id).last_generation)))
    return absl::InvalidArgumentError(
        "a buffer's id is in use or out of order, or its generation does not grow");
  if (id >= wire::kMaxBuffers)
    return absl::InvalidArgumentError(
        absl::StrCat("a session can hold at most ", wire::kMaxBuffers - 1, " buffers"));
  return id <= taken_ ? absl::OkStatus() : Grow();
}

absl::Status BufferTable::Grow() {
  if (taken_ == pieces_.size() * kPiece) {
    ASSIGN_OR_RETURN(Mapping piece, Mapping::MapPrivate(kPiece * sizeof(Buffer)));
    pieces_.push_back(std::move(piece));
  }
  RETURN_IF_ERROR(space_.Take(tenant_, kStep));
  taken_ += kStep;
  return absl::OkStatus();
}

Buffer* BufferTable::Insert(wire::Handle handle) {
  if (handle.id > size_) ++size_;
  Buffer& buffer = At(handle.id);
  const bool listed = buffer.listed;
  buffer = Buffer{};
  buffer.generation = buffer.last_generation = handle.generation;
  buffer.listed = listed;
  ++live_;
  return &buffer;
}

void BufferTable::ForEach(absl::FunctionRef<void(Buffer&)> visit) {
  for (uint32_t id = 1; id <= size_; ++id) {
    if (At(id).generation != 0) visit(At(id));
  }
}

void BufferTable::PoisonSkipped(Buffer& buffer, Fault fault) {
  if (buffer.poison != Poison::kNone) return;
  if (!buffer.written) return PoisonFresh(buffer, fault);
  SetPoison(buffer, Poison::kInPlace, fault);
  if (!std::exchange(buffer.listed, true)) in_place_.push_back(&buffer);
}

void BufferTable::ForgiveInPlace(Fault reported) {
  std::erase_if(in_place_, [&](Buffer* buffer) {
    if (buffer->poison == Poison::kInPlace) {
      if (buffer->fault_queue != reported.queue && buffer->cause != reported.cause) return false;
      buffer->poison = Poison::kNone;
    }
    buffer->listed = false;
    return true;
  });
}

}  // namespace xpud::handles
