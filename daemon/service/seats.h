// Limits the number of connections, in total and for each user. A connection has a seat from its acceptance,
// so that clients that never send a Hello are counted. REQUIRES: the listener's thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"

namespace xpud::service {

class Seats {
 public:
  static constexpr size_t kMax = 1024;
  static constexpr size_t kMaxPerUser = kMax / 4 * 3;  // the default

  // Takes a seat. Returns ResourceExhausted, with the reason, if there is none for this user.
  absl::Status Take(uint32_t uid);
  // Existing connections above the limit stay.
  void SetMaxPerUser(size_t max) { max_per_user_ = max; }
  // Called once for each successful Take.
  void Release(uint32_t uid);

 private:
  size_t max_per_user_ = kMaxPerUser;
  size_t taken_ = 0;
  absl::flat_hash_map<uint32_t, size_t> by_user_;  // by uid; users without connections are absent
};

}  // namespace xpud::service
