#include "daemon/handles/buffer_table.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"

namespace xpud::handles {

using memory::Allocation;
using memory::Poison;
using memory::SharedAllocation;

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
  const bool listed = buffer.own.listed;
  buffer = Buffer{};
  buffer.generation = buffer.last_generation = handle.generation;
  buffer.own.listed = listed;
  ++live_;
  return &buffer;
}

void BufferTable::ForEach(absl::FunctionRef<void(Buffer&)> visit) {
  for (uint32_t id = 1; id <= size_; ++id) {
    if (At(id).generation != 0) visit(At(id));
  }
}

BufferTable::~BufferTable() {
  space_.Return(tenant_, taken_);
  for (SharedAllocation* const allocation : shared_in_place_) {
    if (allocation->poison == Poison::kInPlace) allocation->poison = Poison::kNone;
    allocation->listed = false;
    allocation->list = nullptr;
  }
}

void BufferTable::SetPoison(Allocation& allocation, Poison kind, memory::Fault fault) {
  allocation.SetPoison(kind, fault);
  if (!allocation.is_shared) return;
  auto& shared = static_cast<SharedAllocation&>(allocation);
  shared.poisoned_by = session_;
  shared.error = error_of_(fault.cause);
}

void BufferTable::Spoil(Allocation& allocation, memory::Fault fault) {
  if (allocation.poison == Poison::kNone) SetPoison(allocation, Poison::kFresh, fault);
}

void BufferTable::PoisonSkipped(Allocation& allocation, memory::Fault fault) {
  if (allocation.poison != Poison::kNone) return;
  SetPoison(allocation, allocation.written ? Poison::kInPlace : Poison::kFresh, fault);
  if (!allocation.written) return;
  if (allocation.is_shared) {
    auto& shared = static_cast<SharedAllocation&>(allocation);
    if (shared.list != nullptr && shared.list != this) shared.list->Unlist(shared);
    shared.list = this;
    shared_in_place_.insert(&shared);
  } else if (!allocation.listed) {
    in_place_.push_back(&allocation);
  }
  allocation.listed = true;
}

void BufferTable::Share(Buffer& buffer, SharedAllocation& shared) {
  if (shared.poison != Poison::kNone) {
    shared.poisoned_by = session_;
    shared.error = error_of_(shared.cause);
  }
  if (shared.poison == Poison::kInPlace) {
    shared.listed = true;
    shared.list = this;
    shared_in_place_.insert(&shared);
  }
  buffer.own.poison = Poison::kNone;  // in in_place_ it stands for nothing now
  buffer.Name(shared);
}

void BufferTable::Unlist(SharedAllocation& allocation) {
  shared_in_place_.erase(&allocation);
  allocation.listed = false;
  allocation.list = nullptr;
}

void BufferTable::ForgiveInPlace(memory::Fault reported) {
  const auto forgive = [&](Allocation* allocation) {
    if (allocation->poison == Poison::kInPlace) {
      if (allocation->fault_queue != reported.queue && allocation->cause != reported.cause) return false;
      allocation->poison = Poison::kNone;
    }
    allocation->listed = false;
    return true;
  };
  std::erase_if(in_place_, forgive);
  absl::erase_if(shared_in_place_, [&](SharedAllocation* allocation) {
    if (!forgive(allocation)) return false;
    allocation->list = nullptr;
    return true;
  });
}

}  // namespace xpud::handles
