// What an executor has of its device's memory: chunks and host memory, at the addresses that the daemon
// chose. Thread-safe; the daemon sends requests that concern the same memory one after another.
#pragma once

#include <cstdint>
#include <map>
#include <memory>

#include "absl/status/status.h"
#include "daemon/executor/level_zero/level_zero_device.h"
#include "proto/base/mutex.h"
#include "proto/base/unique_fd.h"

namespace xpud::executor::process {

class ExecutorMemory {
 public:
  // `memory` outlives this.
  explicit ExecutorMemory(LevelZeroMemory& memory) : memory_(memory) {}
  ExecutorMemory(const ExecutorMemory&) = delete;
  ExecutorMemory& operator=(const ExecutorMemory&) = delete;

  // As the requests of the same names; see RequestKind.
  absl::Status Allocate(uint64_t address, uint64_t bytes, UniqueFd& out);
  absl::Status Import(uint64_t address, uint64_t bytes, const UniqueFd& fd);
  absl::Status Reserve(uint64_t address, uint64_t bytes);
  void Free(uint64_t address);
  // `importer` registers it with the driver.
  absl::Status ImportHost(LevelZeroDevice& importer, uint64_t address, uint64_t bytes, const UniqueFd& fd);
  void ReleaseHost(uint64_t address);

  // Copies between device memory at `address` and host memory at `host`. Both ranges must be known: no other
  // address reaches the driver. NotFound: the host memory is not there, also after a short wait.
  absl::Status Copy(BlockingList& list, LevelZeroMemory::Way way, uint64_t address, uint64_t host,
                    uint64_t bytes);
  absl::StatusOr<std::unique_ptr<BlockingList>> CreateList() const { return memory_.CreateList(); }

 private:
  struct Host;
  using ChunkPointer = std::shared_ptr<Chunk>;
  using HostPointer = std::shared_ptr<Host>;

  ChunkPointer Find(uint64_t address);
  absl::Status Add(uint64_t address, absl::StatusOr<std::unique_ptr<Chunk>> chunk);
  ChunkPointer ChunkWith(uint64_t address);  // null: there is none
  HostPointer AwaitHost(uint64_t address, uint64_t bytes);

  LevelZeroMemory& memory_;
  Mutex mutex_;  // not held while the driver works
  CondVar added_;
  std::map<uint64_t, ChunkPointer> chunks_ ABSL_GUARDED_BY(mutex_);
  std::map<uint64_t, HostPointer> hosts_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace xpud::executor::process
