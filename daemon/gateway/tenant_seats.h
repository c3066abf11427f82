// A limited number of seats, of which one tenant can have only a part. Thread-safe. Must outlive the seats
// that it gave.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "proto/base/mutex.h"

namespace xpud::remote {

// Returned when its last copy is destroyed.
using Seat = std::shared_ptr<void>;

class TenantSeats {
 public:
  TenantSeats(int all, int of_tenant) : max_(all), max_per_tenant_(of_tenant) {}

  // Returns ResourceExhausted if there is no seat for this tenant.
  absl::StatusOr<Seat> Take(const std::string& tenant);

 private:
  void Leave(const std::string& tenant);

  const int max_, max_per_tenant_;
  Mutex mutex_;
  int taken_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<std::string, int> by_tenant_ ABSL_GUARDED_BY(mutex_);  // tenants without seats are absent
};

}  // namespace xpud::remote
