// How many buffers the tables of each tenant's sessions have room for. Their entries take memory of the
// daemon's, which no device's quota counts. The engine thread only; it outlives every session.
#pragma once

#include <cstdint>

#include <map>

#include "absl/status/status.h"
#include "daemon/tenant/tenant.h"
#include "proto/wire/commands.h"

namespace xpud::session {

class TableSpace {
 public:
  // Of a tenant: some 350 MiB.
  static constexpr uint64_t kMaxPerTenant = 4 * uint64_t{wire::kMaxBuffers};

  // ResourceExhausted: this tenant's sessions get no more.
  absl::Status Take(const Tenant& tenant, uint64_t entries);
  void Return(const Tenant& tenant, uint64_t entries);

 private:
  std::map<Tenant, uint64_t> of_tenant_;  // those that have any
};

}  // namespace xpud::session
