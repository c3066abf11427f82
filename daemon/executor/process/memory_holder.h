// What one executor after another, which hold the same post, have of a device's memory map. Owned by
// ExecutorPost. REQUIRES: the lane's thread, unless a function says otherwise.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "daemon/executor/process/memory_map.h"
#include "daemon/executor/process/shared_executor.h"

namespace xpud::executor::process {

class MemoryHolder {
 public:
  // Of whose clients it has the memory: of everybody's, or of those that are expected.
  enum class Clients { kAll, kExpected };

  // `map` and `executors` outlive it.
  MemoryHolder(MemoryMap& map, SharedExecutor& executors, Clients clients);
  ~MemoryHolder();
  MemoryHolder(const MemoryHolder&) = delete;
  MemoryHolder& operator=(const MemoryHolder&) = delete;

  // Uses the next executor, which has `had`: applies the changes since, and begins to give it clients'
  // memory.
  absl::Status Adopt(Process next, const MemoryMap::Parts& had);
  // The executor is lost. Changes are for the next one.
  void Lose() { executor_ = nullptr; }
  const Process& executor() const { return executor_; }  // null: there is none
  SharedExecutor& executors() const { return executors_; }

  // Begins to give it what clients of this session share. Does nothing if it has everybody's.
  void Expect(uint64_t owner);
  // Forgets sessions that have ended. `lives`: whether a session is there.
  void ForgetEnded(absl::FunctionRef<bool(uint64_t)> lives);
  size_t expected() const { return expected_.size(); }
  bool Expects(uint64_t owner) const { return clients_ == Clients::kAll || expected_.contains(owner); }
  // Whether the executor has all memory that the session shares. Never, if one that is expected cannot be
  // given.
  bool IsComplete(uint64_t owner) const { return Expects(owner) && !missing_.contains(owner); }
  // Call often. Returns the sessions all of whose memory the executor has got since the last call, and those
  // for which it failed.
  std::vector<std::pair<uint64_t, absl::Status>> TakeGiven();

 private:
  void GiveLater(uint64_t address, const MemoryMap::Part& part);
  void NoteGiven(uint64_t owner, const absl::Status& status);

  MemoryMap& map_;
  SharedExecutor& executors_;
  const Clients clients_;
  Process executor_;  // null: there is none, and the next one has not taken over
  std::set<uint64_t> expected_;
  std::map<uint64_t, size_t> missing_;  // by session: count of its parts that this executor does not have yet
  std::vector<std::pair<uint64_t, absl::Status>> given_;
};

}  // namespace xpud::executor::process
