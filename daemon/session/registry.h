// All sessions of the daemon, and what happened to them. Thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/handles/table_space.h"
#include "daemon/session/session.h"
#include "daemon/telemetry/event_log.h"
#include "daemon/tenant/claims.h"
#include "daemon/tenant/totals.h"
#include "proto/base/mutex.h"

namespace xpud::session {

class Registry {
 public:
  struct Counters {
    uint64_t opened = 0;
    uint64_t closed_for_fault = 0;
  };

  // Adds a session that sees the devices of these lanes. Returns Unavailable while the daemon is drained, and
  // otherwise what Claims::Admit says.
  absl::StatusOr<std::shared_ptr<Session>> Add(Peer peer, std::vector<uint32_t> devices,
                                               std::shared_ptr<handles::HostMemories> host_memories);
  // The session is over. Does nothing if it was closed before. `fault`: for what the client did.
  void Close(Session& session, const std::string& reason, bool fault);
  // Returns nullptr if there is no such session.
  std::shared_ptr<Session> Find(uint64_t id) const;
  // By id.
  std::vector<std::shared_ptr<Session>> List() const;
  Counters counters() const;
  // A device session has ended: its tenant keeps what it counted.
  void CountEnded(const Tenant& tenant, uint32_t device, const SessionCounters& counters);
  // The sessions of each tenant, without their work.
  TenantTotals Tenants() const;
  // The work of the device sessions that have ended on a device.
  TenantTotals EndedWork(uint32_t device) const;

  // A drained daemon takes no new sessions; those that exist continue.
  void SetDrained(bool drained);
  bool drained() const;
  // Returns OK, or why there is no place.
  absl::Status Admits() const;

  telemetry::EventLog& events() { return events_; }
  Claims& claims() { return claims_; }
  const Claims& claims() const { return claims_; }
  handles::TableSpace& table_space() { return table_space_; }

 private:
  void Note(const char* kind, const Session& session, std::string text);

  telemetry::EventLog events_;
  Claims claims_;
  handles::TableSpace table_space_;
  mutable Mutex mutex_;
  std::map<uint64_t, std::shared_ptr<Session>> sessions_ ABSL_GUARDED_BY(mutex_);
  uint64_t last_id_ ABSL_GUARDED_BY(mutex_) = 0;
  Counters counters_ ABSL_GUARDED_BY(mutex_);
  TenantTotals tenants_ ABSL_GUARDED_BY(mutex_);
  bool drained_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace xpud::session
