#include "daemon/session/registry.h"

#include <spdlog/spdlog.h>

#include <utility>

#include "proto/base/status_macros.h"

namespace xpud::session {

absl::StatusOr<std::shared_ptr<Session>> Registry::Add(Peer peer, std::vector<uint32_t> devices,
                                                       std::shared_ptr<handles::HostMemories> host_memories) {
  RETURN_IF_ERROR(Admits());
  RETURN_IF_ERROR(claims_.Admit(peer.tenant));
  std::shared_ptr<Session> session;
  {
    MutexLock lock(mutex_);
    const uint64_t id = ++last_id_;
    session = std::make_shared<Session>(id, std::move(peer), std::move(devices), std::move(host_memories));
    sessions_.emplace(id, session);
    ++counters_.opened;
    tenants_.Opened(session->peer().tenant);
  }
  Note("session_opened", *session, "");
  return session;
}

void Registry::Close(Session& session, const std::string& reason, bool fault) {
  if (!session.Close()) return;
  Note("session_closed", session, reason);
  const Peer& peer = session.peer();
  if (fault)
    spdlog::warn("session_closed id={} pid={} tenant={} reason=\"{}\"", session.id(), peer.pid,
                 peer.tenant.Text(), reason);
  else
    spdlog::info("session_closed id={} pid={} reason=\"{}\"", session.id(), peer.pid, reason);
  MutexLock lock(mutex_);
  if (fault) ++counters_.closed_for_fault;
  sessions_.erase(session.id());
  tenants_.Closed(peer.tenant);
  claims_.Leave(peer.tenant);
}

std::shared_ptr<Session> Registry::Find(uint64_t id) const {
  MutexLock lock(mutex_);
  const auto found = sessions_.find(id);
  return found == sessions_.end() ? nullptr : found->second;
}

std::vector<std::shared_ptr<Session>> Registry::List() const {
  MutexLock lock(mutex_);
  std::vector<std::shared_ptr<Session>> sessions;
  for (const auto& [id, session] : sessions_) sessions.push_back(session);
  return sessions;
}

Registry::Counters Registry::counters() const {
  MutexLock lock(mutex_);
  return counters_;
}

void Registry::CountEnded(const Tenant& tenant, uint32_t device, const SessionCounters& counters) {
  MutexLock lock(mutex_);
  tenants_.Of(tenant).counters[device] += counters;
}

TenantTotals Registry::Tenants() const {
  MutexLock lock(mutex_);
  return tenants_.Sessions();
}

TenantTotals Registry::EndedWork(uint32_t device) const {
  MutexLock lock(mutex_);
  return tenants_.WorkOn(device);
}

void Registry::SetDrained(bool drained) {
  {
    MutexLock lock(mutex_);
    if (std::exchange(drained_, drained) == drained) return;
  }
  spdlog::info("drain state={}", drained ? "on" : "off");
  events_.Add({.kind = drained ? "drain_on" : "drain_off"});
}

bool Registry::drained() const {
  MutexLock lock(mutex_);
  return drained_;
}

absl::Status Registry::Admits() const {
  if (!drained()) return absl::OkStatus();
  return absl::UnavailableError(
      "it is drained: it takes no new sessions until an operator says `xpuctl drain off`");
}

void Registry::Note(const char* kind, const Session& session, std::string text) {
  const Peer& peer = session.peer();
  events_.Add({.kind = kind,
               .session = telemetry::Event::Session{session.id(), peer.pid, peer.tenant, peer.name},
               .text = std::move(text)});
}

}  // namespace xpud::session
