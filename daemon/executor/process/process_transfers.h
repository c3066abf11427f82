// Moves of chunks by executor processes. When an executor is lost in the middle, a move goes on with the next
// one. Before a leave is committed, the contents are copied again: the daemon holds the memory's fd. A return
// begins again with new memory, unless all of it was copied: then the daemon holds its fd. The map lists the
// change, on the lane's thread, when all executors have it. An executor that comes before gets what is
// listed, and then the change, on a mover's thread. Owned by ProcessDevice. REQUIRES: the lane's thread,
// except for what is said in chunk_mover.h.
#pragma once

#include <memory>

#include "daemon/executor/api/chunk_mover.h"
#include "daemon/executor/process/memory_map.h"

namespace xpud::executor::process {

class ProcessTransfers final : public Transfers {
 public:
  // `map` and its holders outlive this.
  explicit ProcessTransfers(MemoryMap& map) : map_(map) {}

  std::unique_ptr<Transfer> Leave(Chunk& chunk, HostParts to) override;
  std::unique_ptr<Transfer> Return(Chunk& chunk, HostParts from) override;
  void Interrupt() override;

 private:
  class Exchange;
  class LeaveExchange;
  class ReturnExchange;

  MemoryMap& map_;
};

}  // namespace xpud::executor::process
