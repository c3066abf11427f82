// Batches of launches that came again, each as the device recorded it: appending one of them costs as much as
// a launch. A batch that is like a recorded one but for its arguments changes that one, which costs half as
// much as launching anew. Bounded: those that were used least recently go. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "daemon/executor/process/launch_batch.h"
#include "daemon/executor/recorded_commands.h"

namespace xpud::executor::process {

struct Recording {
  uint32_t queue = 0;
  std::vector<std::byte> messages;  // empty: nothing is recorded
  RecordedCommands commands;
  uint64_t used = 0;

  bool Holds(std::span<const std::byte> batch) const;
};

class Recordings {
 public:
  // What a batch, whose messages these are, is to be appended as: either it Holds them, or they are to be
  // recorded there. Null: it is not worth it, or has failed. Valid until the next call.
  Recording* Find(const LaunchBatch& batch, std::span<const std::byte> messages);
  // Batches like this one cannot be recorded.
  void Refuse(const LaunchBatch& batch);
  void Forget(uint32_t queue);
  size_t size() const { return size_; }

 private:
  // Batches of one structure.
  struct Family {
    uint32_t seen = 0;
    bool refused = false;
    std::vector<std::unique_ptr<Recording>> recordings;
  };
  Recording* Add(Family& family);
  void MakeRoom();

  absl::flat_hash_map<uint64_t, Family> families_;
  size_t size_ = 0;  // recordings
  uint64_t uses_ = 0;
};

}  // namespace xpud::executor::process
