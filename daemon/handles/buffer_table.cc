#include "daemon/handles/buffer_table.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"

namespace xpud::handles {

using memory::Allocation;
using memory::Poison;

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
  const bool listed = buffer.allocation.listed;
  buffer = Buffer{};
  buffer.generation = buffer.last_generation = handle.generation;
  buffer.allocation.listed = listed;
  ++live_;
  return &buffer;
}

void BufferTable::ForEach(absl::FunctionRef<void(Buffer&)> visit) {
  for (uint32_t id = 1; id <= size_; ++id) {
    if (At(id).generation != 0) visit(At(id));
  }
}

void BufferTable::PoisonSkipped(Allocation& allocation, memory::Fault fault) {
  if (allocation.poison != Poison::kNone) return;
  allocation.SetPoison(allocation.written ? Poison::kInPlace : Poison::kFresh, fault);
  if (allocation.written && !std::exchange(allocation.listed, true)) in_place_.push_back(&allocation);
}

void BufferTable::ForgiveInPlace(memory::Fault reported) {
  std::erase_if(in_place_, [&](Allocation* allocation) {
    if (allocation->poison == Poison::kInPlace) {
      if (allocation->fault_queue != reported.queue && allocation->cause != reported.cause) return false;
      allocation->poison = Poison::kNone;
    }
    allocation->listed = false;
    return true;
  });
}

}  // namespace xpud::handles
