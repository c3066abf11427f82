#include "daemon/executor/level_zero/level_zero_transfers.h"

#include <utility>

#include "proto/base/check.h"
#include "proto/base/status_macros.h"

namespace xpud::executor {

using Way = LevelZeroMemory::Way;

class LevelZeroTransfers::LeaveTransfer final : public Transfer {
 public:
  LeaveTransfer(LevelZeroTransfers& owner, Chunk& chunk, HostParts to)
      : owner_(owner), chunk_(chunk), to_(std::move(to)) {}

  absl::Status Run(uint32_t thread, MoveControl& control) override {
    LevelZeroMemory& memory = owner_.memory_;
    ASSIGN_OR_RETURN(BlockingList * list, owner_.ListOf(thread));
    RETURN_IF_ERROR(CopyPieces(to_, control, [&](uint64_t offset, std::byte* host, uint64_t bytes) {
      return memory.CopyPiece(*list, Way::kOut, chunk_, offset, host, bytes);
    }));
    if (!control.Commit()) return absl::CancelledError("the move was forgotten");
    return memory.TakeAway(chunk_);
  }

 private:
  LevelZeroTransfers& owner_;
  Chunk& chunk_;
  const HostParts to_;
};

class LevelZeroTransfers::ReturnTransfer final : public Transfer {
 public:
  ReturnTransfer(LevelZeroTransfers& owner, Chunk& chunk, HostParts from)
      : owner_(owner), chunk_(chunk), from_(std::move(from)) {}

  absl::Status Run(uint32_t thread, MoveControl& control) override {
    LevelZeroMemory& memory = owner_.memory_;
    ASSIGN_OR_RETURN(BlockingList * list, owner_.ListOf(thread));
    RETURN_IF_ERROR(memory.Fill(chunk_));
    absl::Status copied = CopyPieces(from_, control, [&](uint64_t offset, std::byte* host, uint64_t bytes) {
      return memory.CopyPiece(*list, Way::kIn, chunk_, offset, host, bytes);
    });
    if (!copied.ok()) memory.TakeAway(chunk_).IgnoreError();
    return copied;
  }

 private:
  LevelZeroTransfers& owner_;
  Chunk& chunk_;
  const HostParts from_;
};

std::unique_ptr<Transfer> LevelZeroTransfers::Leave(Chunk& chunk, HostParts to) {
  XPUD_CHECK(LevelZeroMemory::IsThere(chunk));
  return std::make_unique<LeaveTransfer>(*this, chunk, std::move(to));
}

std::unique_ptr<Transfer> LevelZeroTransfers::Return(Chunk& chunk, HostParts from) {
  XPUD_CHECK(!LevelZeroMemory::IsThere(chunk));
  return std::make_unique<ReturnTransfer>(*this, chunk, std::move(from));
}

absl::StatusOr<BlockingList*> LevelZeroTransfers::ListOf(uint32_t thread) {
  std::unique_ptr<BlockingList>& list = lists_[thread];
  if (list == nullptr) {
    ASSIGN_OR_RETURN(list, memory_.CreateList());
  }
  return list.get();
}

}  // namespace xpud::executor
