// Queues and threads for the moves of a device's chunks, both ways at once. Each direction has two threads,
// so that one maps memory while the other copies. What they do with a chunk is the device's: see Transfer.
// REQUIRES: the lane's thread, unless a function says otherwise.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "daemon/executor/api/mover.h"
#include "proto/base/mutex.h"

namespace xpud::executor {

// What a running transfer knows of its move. Any thread.
class MoveControl {
 public:
  virtual ~MoveControl() = default;
  virtual bool ended() const = 0;   // the mover ends: return soon, with any error
  virtual bool wanted() const = 0;  // false: the move was forgotten, or the mover ends
  // From now on the move cannot be forgotten. Returns false if it has been.
  virtual bool Commit() = 0;
};

// One move, as its device does it. Used by one thread at a time.
class Transfer {
 public:
  virtual ~Transfer() = default;
  // Does the move, and may block. On one of the mover's threads: `thread` is less than
  // ChunkMover::kThreads, and two transfers run at once only with different ones.
  virtual absl::Status Run(uint32_t thread, MoveControl& control) = 0;
  // After Run was OK: on the lane's thread, which must not wait. Returns false if Run must be called again.
  virtual bool Finish() { return true; }
};

// Makes a device's transfers.
class Transfers {
 public:
  virtual ~Transfers() = default;
  virtual std::unique_ptr<Transfer> Leave(Chunk& chunk, HostParts to) = 0;
  virtual std::unique_ptr<Transfer> Return(Chunk& chunk, HostParts from) = 0;
  // Transfers that wait for something check MoveControl::ended again.
  virtual void Interrupt() {}
};

class ChunkMover final : public Mover {
 public:
  static constexpr uint32_t kDirectionThreads = 2;
  static constexpr uint32_t kThreads = 2 * kDirectionThreads;

  // `wake` is called on any thread when FinishDone has something to do. `transfers` outlives the mover.
  ChunkMover(std::function<void()> wake, Transfers& transfers);
  ~ChunkMover() override;
  ChunkMover(const ChunkMover&) = delete;
  ChunkMover& operator=(const ChunkMover&) = delete;

  std::shared_ptr<Move> StartLeave(Chunk& chunk, HostParts to, Done done) override;
  std::shared_ptr<Move> StartReturn(Chunk& chunk, HostParts from, Done done) override;
  void End() override;
  // Finishes moves whose transfers have run.
  void FinishDone();

 private:
  class Job;
  using JobPointer = std::shared_ptr<Job>;
  struct Direction {
    const char* name;  // of its threads
    uint32_t first_thread;
    std::vector<std::thread> threads{};
    Mutex mutex{};
    CondVar changed{};  // notified for each that waits, and when the mover ends
    std::deque<JobPointer> waiting ABSL_GUARDED_BY(mutex){};
  };

  std::shared_ptr<Move> Start(JobPointer job);
  absl::Status EnsureThreads(Direction& direction);
  void Main(Direction& direction, uint32_t thread);
  void AddDone(JobPointer job);  // any thread
  // A job that was forgotten: if no thread has it yet, none will.
  void Drop(const Job& job);

  const std::function<void()> wake_;
  Transfers& transfers_;
  Direction out_{.name = "xpud-out", .first_thread = 0};
  Direction in_{.name = "xpud-in", .first_thread = kDirectionThreads};
  Mutex done_mutex_;
  std::vector<JobPointer> done_ ABSL_GUARDED_BY(done_mutex_);
  std::atomic<bool> any_done_{false};
  std::atomic<bool> ended_{false};
};

// Copies `parts` piece by piece: calls copy(offset in the chunk, the device's address of the host memory,
// bytes). Returns its first error, or Cancelled once the move is not wanted. Any thread.
absl::Status CopyPieces(const HostParts& parts, const MoveControl& control,
                        absl::FunctionRef<absl::Status(uint64_t, std::byte*, uint64_t)> copy);

}  // namespace xpud::executor
