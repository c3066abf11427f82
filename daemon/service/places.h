// The places that clients take: one a connection, from the moment it is accepted, so that those who never
// greet count, too. One user has no more than a part of them. Owned by the listener and used on its thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"

namespace xpud::service {

class Places {
 public:
  static constexpr size_t kMax = 1024;
  static constexpr size_t kMaxPerUser = kMax / 4 * 3;  // unless the operator says otherwise

  // ResourceExhausted: this user gets no place now, and why.
  absl::Status Take(uint32_t uid);
  // Those that have more keep them.
  void SetMostOfUser(size_t most) { most_of_user_ = most; }
  // Once for each Take that was OK.
  void Release(uint32_t uid);

 private:
  size_t most_of_user_ = kMaxPerUser;
  size_t taken_ = 0;
  absl::flat_hash_map<uint32_t, size_t> of_user_;  // by uid; those that have any
};

}  // namespace xpud::service
