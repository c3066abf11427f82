// Limits the number of connections, in total and for each user or claim. A connection has a seat from its
// acceptance, so that clients that never send a Hello are counted. REQUIRES: the listener's thread.
#pragma once

#include <cstddef>
#include <map>

#include "absl/status/status.h"
#include "daemon/tenant/tenant.h"

namespace xpud::service {

class Seats {
 public:
  static constexpr size_t kMax = 1024;
  static constexpr size_t kMaxPerUser = kMax / 4 * 3;  // the default

  // Takes a seat. Returns ResourceExhausted, with the reason, if there is none for this user or claim.
  absl::Status Take(const Tenant& tenant);
  // Existing connections above the limit stay.
  void SetMaxPerUser(size_t max) { max_per_user_ = max; }
  // REQUIRES: Take returned OK for this tenant.
  void Release(const Tenant& tenant);

 private:
  size_t max_per_user_ = kMaxPerUser;
  size_t taken_ = 0;
  std::map<Tenant, size_t> by_tenant_;
};

}  // namespace xpud::service
