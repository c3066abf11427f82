// How many buffers the tables of each user's sessions have room for. Their entries take memory of the
// daemon's, which no device's quota counts. The engine thread only; it outlives every session.
#pragma once

#include <cstdint>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "proto/wire/commands.h"

namespace xpud::session {

class TableSpace {
 public:
  // Of a user: some 350 MiB.
  static constexpr uint64_t kMostOfUser = 4 * uint64_t{wire::kMaxBuffers};

  // ResourceExhausted: this user's sessions get no more.
  absl::Status Take(uint32_t uid, uint64_t entries);
  void Return(uint32_t uid, uint64_t entries);

 private:
  absl::flat_hash_map<uint32_t, uint64_t> of_user_;  // by uid; those that have any
};

}  // namespace xpud::session
