// Recordings of batches of launches that recur. Appending a recording costs as much as one launch. Bounded.
// Not thread-safe.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "daemon/executor/level_zero/recorded_commands.h"
#include "daemon/executor/process/replay_times.h"

namespace xpud::executor::process {

struct Recording {
  uint32_t queue = 0;
  std::vector<std::byte> messages;  // messages of the batch; empty: not recorded yet
  std::vector<uint32_t> kernels;    // kernels that it launches
  RecordedCommands commands;
  std::shared_ptr<const OperationCounts> counts;  // null: not known
  uint64_t used = 0;

  void Keep(std::span<const std::byte> batch);  // stores the batch after it was recorded
};

class Recordings {
 public:
  // Returns the recording of the batch `messages`. It is empty if the caller must record it now. Returns null
  // if the batch has not occurred often enough, could not be recorded, or there is no room. Valid until the
  // next call.
  Recording* Find(std::span<const std::byte> messages);
  // Says that these messages, for which Find returned an empty recording, cannot be recorded.
  void Refuse(std::span<const std::byte> messages);
  void Forget(uint32_t queue);
  void ForgetKernel(uint32_t kernel);
  size_t size() const { return recordings_.size(); }

 private:
  // How often a batch occurred recently. Batches whose hashes share a slot displace each other.
  struct Occurrence {
    uint64_t hash = 0;
    int count = 0;
  };
  Occurrence& OccurrenceOf(uint64_t hash) { return occurrences_[hash % occurrences_.size()]; }
  bool MakeRoom();

  absl::flat_hash_map<uint64_t, Recording> recordings_;  // by hash
  std::array<Occurrence, 4096> occurrences_;
  uint64_t uses_ = 0;  // count of calls of Find
};

}  // namespace xpud::executor::process
