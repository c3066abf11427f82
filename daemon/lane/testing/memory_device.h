// A device that has memory and copies, but runs no kernels: it only checks the memory of launches. It works
// synchronously or, as an asynchronous device, reports progress when Announce is called. Memory that the pool
// has not allocated is poisoned under ASan, so that stray copies are found. Its chunks can leave. Not
// thread-safe.
#pragma once

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "daemon/executor/api/device.h"
#include "daemon/executor/api/device_queue.h"
#include "daemon/executor/api/mover.h"

namespace xpud::lane {

class MemoryDevice final : public executor::Device {
 public:
  explicit MemoryDevice(bool asynchronous, uint64_t total_memory);

  absl::StatusOr<std::unique_ptr<executor::Chunk>> AllocateChunk(uint64_t bytes) override;
  // Among devices of this process: the fd says where the memory is.
  absl::StatusOr<UniqueFd> ExportMemory(const executor::Chunk& chunk) override;
  absl::StatusOr<std::unique_ptr<executor::Chunk>> MapPeer(const UniqueFd& memory, uint64_t bytes) override;
  absl::StatusOr<std::unique_ptr<executor::HostMemory>> AllocateHost(uint64_t bytes) override;
  absl::StatusOr<std::unique_ptr<executor::HostMemory>> Import(const transport::SharedBytes& memory) override;
  void StartImport(const transport::SharedBytes& memory, uint64_t owner, ImportDone done) override;
  absl::StatusOr<std::unique_ptr<executor::DeviceQueue>> CreateQueue(PriorityClass priority,
                                                                     uint64_t owner) override;
  absl::StatusOr<std::string> Assemble(const std::string& text) override;
  absl::StatusOr<uint64_t> RunHostKernel(const kernels::Launch& launch) override;
  void Forget(std::vector<const kernels::Kernel*>& kernels) override { kernels.clear(); }

  // Chunks move when Poll is called, one after the other.
  absl::StatusOr<std::unique_ptr<executor::Chunk>> ReserveChunk(uint64_t bytes) override;
  executor::Mover* mover() override;
  std::vector<executor::Verdict> Poll() override;
  // New marks of queues fail so.
  void FailMarks(absl::Status status) { mark_failure_ = std::move(status); }
  // Called when a queue ends.
  std::function<void()> on_queue_end = [] {};
  // New chunks, and the next moves, fail so.
  void FailAllocations(absl::Status status) { allocation_failure_ = std::move(status); }
  void FailMoves(absl::Status status) { move_failure_ = std::move(status); }
  // Reports all work done so far.
  void Announce();
  // A part of each queue's work has failed; the rest goes on.
  void Raise(const absl::Status& error);
  // The next Poll says that the owner's work is lost: that of all its queues, or of all but so many.
  void Lose(uint64_t owner, std::string reason, size_t spared = 0);

 private:
  class Queue;
  class Moves;
  std::set<Queue*> queues_;
  std::shared_ptr<Moves> moves_;
  absl::Status allocation_failure_, mark_failure_, move_failure_;
  std::vector<executor::Verdict> verdicts_;
};

}  // namespace xpud::lane
