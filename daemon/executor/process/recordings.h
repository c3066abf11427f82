// Batches of launches that came again and again, each as the device recorded it: appending one of them costs
// as much as a launch. Bounded. One thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "daemon/executor/level_zero/recorded_commands.h"

namespace xpud::executor::process {

struct Recording {
  uint32_t queue = 0;
  std::vector<std::byte> messages;  // the batch's; empty: nothing is recorded yet
  std::vector<uint32_t> kernels;    // that they launch
  RecordedCommands commands;
  uint64_t used = 0;

  void Keep(std::span<const std::byte> batch);  // what was recorded
};

class Recordings {
 public:
  // The recording of a batch, whose messages these are; empty where it is to be made now. Null: it has not
  // come often enough, or has failed, or there is no room. Valid until the next call.
  Recording* Find(std::span<const std::byte> messages);
  // These messages, for which there is an empty recording, cannot be recorded.
  void Refuse(std::span<const std::byte> messages);
  void Forget(uint32_t queue);
  void ForgetKernel(uint32_t kernel);
  size_t size() const { return recordings_.size(); }

 private:
  // How often a batch came of late. Batches whose hashes meet in a slot displace each other.
  struct Sighting {
    uint64_t hash = 0;
    int count = 0;
  };
  Sighting& SightingOf(uint64_t hash) { return sightings_[hash % sightings_.size()]; }
  bool MakeRoom();

  absl::flat_hash_map<uint64_t, Recording> recordings_;  // by hash
  std::array<Sighting, 4096> sightings_;
  uint64_t uses_ = 0;  // batches that were looked for
};

}  // namespace xpud::executor::process
