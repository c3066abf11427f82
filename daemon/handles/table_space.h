// How many buffers the tables of each tenant's sessions have room for. Their entries take memory of the
// daemon's, which no device's quota counts. Outlives every session. Thread-safe.
#pragma once

#include <cstdint>
#include <map>

#include "absl/status/status.h"
#include "daemon/tenant/tenant.h"
#include "proto/base/mutex.h"
#include "proto/wire/commands.h"

namespace xpud::handles {

class TableSpace {
 public:
  // Entries of one tenant: about 350 MiB.
  static constexpr uint64_t kMaxPerTenant = 4 * uint64_t{wire::kMaxBuffers};

  // Returns ResourceExhausted if the tenant's sessions have too many.
  absl::Status Take(const Tenant& tenant, uint64_t entries);
  void Return(const Tenant& tenant, uint64_t entries);

 private:
  Mutex mutex_;
  std::map<Tenant, uint64_t> of_tenant_ ABSL_GUARDED_BY(mutex_);  // those that have any
};

}  // namespace xpud::handles
