// Moves of a device's chunks within this process, on the threads of its mover.
#pragma once

#include <array>
#include <memory>

#include "absl/status/statusor.h"
#include "daemon/executor/api/chunk_mover.h"
#include "daemon/executor/level_zero/level_zero_memory.h"

namespace xpud::executor {

class LevelZeroTransfers final : public Transfers {
 public:
  // REQUIRES: memory.moves_chunks().
  explicit LevelZeroTransfers(LevelZeroMemory& memory) : memory_(memory) {}
  std::unique_ptr<Transfer> Leave(Chunk& chunk, HostParts to) override;
  std::unique_ptr<Transfer> Return(Chunk& chunk, HostParts from) override;

 private:
  class LeaveTransfer;
  class ReturnTransfer;

  absl::StatusOr<BlockingList*> ListOf(uint32_t thread);  // on that thread of the mover

  LevelZeroMemory& memory_;
  // Each belongs to a thread of the mover, which makes it; null: it has not.
  std::array<std::unique_ptr<BlockingList>, ChunkMover::kThreads> lists_;
};

}  // namespace xpud::executor
