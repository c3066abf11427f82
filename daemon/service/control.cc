#include "daemon/service/control.h"

#include <grpc/support/time.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/server_posix.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "absl/strings/str_cat.h"
#include "daemon/executor/level_zero/driver.h"
#include "daemon/service/claim_messages.h"
#include "daemon/service/control_events.h"
#include "daemon/service/control_records.h"
#include "daemon/service/handed_sockets.h"
#include "daemon/service/small_server.h"
#include "daemon/service/socket_file.h"
#include "proto/base/clock.h"
#include "proto/base/start_thread.h"
#include "proto/base/status_macros.h"
#include "proto/control/grpc_status.h"
#include "proto/control/xpud.grpc.pb.h"

namespace xpud::service {
namespace {

uint64_t ResidentBytes() {
  std::ifstream statm("/proc/self/statm");
  uint64_t total = 0, resident = 0;
  statm >> total >> resident;
  return resident * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

uint64_t CpuNs() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  const auto ns = [](const timeval& time) {
    return static_cast<uint64_t>(time.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(time.tv_usec) * 1000;
  };
  return ns(usage.ru_utime) + ns(usage.ru_stime);
}

void Fill(const Histogram& histogram, v1::Histogram& out) {
  for (const uint64_t count : histogram.counts()) out.add_counts(count);
  out.set_sum_ns(histogram.sum_ns());
}

// REQUIRES: the lane's thread.
void Fill(lane::Lane& lane, v1::Device& out) {
  const executor::DeviceProperties& properties = lane.properties();
  stream::DeviceState& state = lane.state();
  out.set_index(lane.index());
  out.set_name(properties.name);
  out.set_kind(properties.kind);
  out.set_vendor(properties.vendor);
  out.set_driver("libze_xpud " XPUD_VERSION);
  out.set_compute_units(properties.compute_units);
  out.set_pci_address(properties.pci_address.Text());
  if (properties.peak.memory_bytes != 0) out.set_peak_memory_bytes_per_s(properties.peak.memory_bytes);
  if (properties.peak.float_operations != 0)
    out.set_peak_float_operations_per_s(properties.peak.float_operations);
  if (properties.peak.half_operations != 0)
    out.set_peak_half_operations_per_s(properties.peak.half_operations);
  out.set_memory_total_bytes(properties.total_memory);
  out.set_memory_used_bytes(state.pool->used_bytes());
  out.set_pool_bytes(state.pool->chunk_bytes());
  out.set_pool_peak_bytes(state.pool->peak_bytes());
  out.set_busy_ns(state.time.busy_ns());
  out.set_commands_completed(state.commands);
  out.set_launches(state.launches);
  out.set_peer_bytes(state.peer_bytes);
  if (!properties.synchronous) {
    out.set_predicted_took_ns(state.predicted_took_ns);
    out.set_prediction_error_ns(state.prediction_error_ns);
  }
  uint32_t queues = 0;
  lane.ForEach(
      [&](const session::DeviceSession& session) { queues += static_cast<uint32_t>(session.queue_count()); });
  out.set_queues(queues);
  const kernels::KernelCounters kernels = state.library->counters();
  out.set_kernels_compiled(kernels.compiled);
  out.set_kernel_cache_hits(kernels.memory_hits);
  out.set_kernel_disk_cache_hits(kernels.disk_hits);
  out.set_kernel_shared_hits(kernels.shared_hits);
  out.set_kernel_compiles_failed(kernels.failed);
  out.set_kernel_compile_ns(kernels.compile_ns);
  Fill(kernels.compile_times, *out.mutable_kernel_compile_times());
  for (const auto& [cause, count] : lane.stalls().counts()) {
    v1::StallCount& stalls = *out.add_stalls();
    stalls.set_cause(cause);
    stalls.set_count(count);
  }
  using enum executor::ExecutorRole;
  const executor::ExecutorStatus executor = state.device->executor(kAll);
  const executor::ExecutorStatus batch = state.device->executor(kBatch);
  if (executor.pid != 0) out.set_executor_pid(executor.pid);
  if (batch.pid != 0) out.set_batch_executor_pid(batch.pid);
  if (!properties.replaceable) return;
  out.set_executors_replaced(executor.replaced + batch.replaced);
  out.set_launches_replayed(state.device->replayed_launches());
}

void Fill(const session::Session& session, v1::Session& out) {
  out.set_id(session.id());
  out.set_pid(session.peer().pid);
  const Tenant& tenant = session.peer().tenant;
  out.set_uid(session.peer().uid);
  if (!tenant.claim.empty()) out.set_claim(tenant.claim);
  if (!tenant.name.empty()) out.set_tenant_name(tenant.name);
  out.set_tenant(tenant.Text());
  out.set_client_name(session.peer().name);
  out.set_age_ns(NowNs() - session.opened_ns());
  out.set_nice(session.nice());
  out.set_host_memory_bytes(session.host_memories()->bytes());
  SessionCounters().CopyTo(out);
}

void Fill(uint32_t device, const memory::DeviceMemory& usage, v1::DeviceMemory& out) {
  out.set_device(device);
  out.set_device_bytes(usage.device_bytes);
  out.set_on_device_bytes(usage.on_device);
  out.set_host_bytes(usage.host_bytes);
  out.set_host_limit_bytes(usage.host_limit);
  out.set_file_bytes(usage.file_bytes);
  out.set_turns(usage.turns);
  out.set_turn_ns(usage.turn_ns);
  out.set_merging_ns(usage.merging_ns);
  out.set_merging_bytes(usage.merging_bytes);
}

void Fill(uint32_t device, const Tenant& tenant, const memory::TenantMemory& memory, v1::TenantMemory& out) {
  out.set_device(device);
  out.set_tenant(tenant.Text());
  out.set_holds_bytes(memory.holds);
  out.set_on_device_bytes(memory.on_device);
  out.set_moved_out_bytes(memory.moved_out);
  out.set_cached_bytes(memory.cached);
  out.set_shared_bytes(memory.shared);
  out.set_sharers(static_cast<uint32_t>(memory.sharers));
  out.set_saved_bytes(memory.saved);
  out.set_moved_in_bytes_per_s(memory.moved.in_per_s);
  out.set_moved_out_bytes_per_s(memory.moved.out_per_s);
  out.set_moved_in_total_bytes(memory.moved.in);
  out.set_moved_out_total_bytes(memory.moved.out);
  out.set_copied_at_write_bytes(memory.copied_at_write);
  Fill(memory.stalls, *out.mutable_stalls());
}

// A session's parts on all devices.
struct Work {
  SessionCounters counters;
  uint64_t memory_bytes = 0, shared_bytes = 0, peak_bytes = 0, buffers = 0, queues = 0, kernels_pending = 0;
  std::string waiting_for;                        // on the last of them
  std::map<uint32_t, v1::SessionDevice> devices;  // that the session uses

  void Add(uint32_t device, const session::DeviceSession& session) {
    counters += session.counters();
    memory_bytes += session.allocated_bytes();
    shared_bytes += session.shared_bytes();
    peak_bytes += session.peak_bytes();
    buffers += session.buffer_count();
    queues += static_cast<uint64_t>(session.queue_count());
    v1::SessionDevice& part = devices[device];
    part.set_index(device);
    part.set_memory_bytes(session.allocated_bytes());
    part.set_busy_ns(session.counters().busy_ns);
    kernels_pending += session.kernels_pending();
    const session::DeviceSession::WaitState state = session.wait_state();
    if (state.has_commands) waiting_for = records::Describe(state.stall, state.row);
  }
  void CopyTo(v1::Session& out) const {
    counters.CopyTo(out);
    out.set_memory_bytes(memory_bytes);
    out.set_shared_bytes(shared_bytes);
    out.set_memory_peak_bytes(peak_bytes);
    out.set_buffers(buffers);
    out.set_queues(static_cast<uint32_t>(queues));
    out.set_kernels_pending(kernels_pending);
    for (const auto& [index, part] : devices) *out.add_devices() = part;
    if (!waiting_for.empty()) out.set_waiting_for(waiting_for);
  }
};
using WorkBySession = std::map<uint64_t, Work>;

void Fill(const std::string& tenant, const TenantTotal& total, v1::TenantTotal& out) {
  out.set_tenant(tenant);
  out.set_sessions(total.sessions);
  out.set_sessions_opened(total.sessions_opened);
  out.set_memory_bytes(total.memory_bytes);
  out.set_shared_bytes(total.shared_bytes);
  total.AllCounters().CopyTo(out);
}

void Fill(const Claims::Entry& entry, const ClaimDesk& desk, v1::Claim& out) {
  const Claim& claim = entry.claim;
  out = MessageOf(claim);
  out.set_kept(desk.keeps());
  out.set_door(desk.doors().FolderOf(claim.key));
  if (claim.door_uid) out.set_user_door(desk.doors().UserFolderOf(claim.key));
  const uint64_t now_ns = BootClockNs();
  if (entry.expires_ns != 0)
    out.set_expires_in_ms((entry.expires_ns - std::min(entry.expires_ns, now_ns)) / 1'000'000);
  out.set_sessions(entry.sessions);
  out.set_ends(entry.ends);
}

void Fill(const compiler::CompileDesk::State& state, v1::Compiler& out) {
  if (state.process.pid != 0) out.set_pid(state.process.pid);
  out.set_replaced(state.process.replaced);
  out.set_running(static_cast<uint32_t>(state.running));
  out.set_overdue(static_cast<uint32_t>(state.overdue));
  out.set_waiting(static_cast<uint32_t>(state.waiting));
  out.set_compiled(state.compiled);
  out.set_failed(state.failed);
  out.set_compile_ns(state.compile_ns);
}

v1::Quota& AddQuota(uint32_t device, const std::optional<uint64_t>& bytes, uint64_t effective,
                    v1::ListQuotasResponse& out) {
  v1::Quota& quota = *out.add_quotas();
  quota.set_device(device);
  if (bytes) quota.set_bytes(*bytes);
  quota.set_effective_bytes(effective);
  return quota;
}

std::string Describe(const v1::SetQuotaRequest& request) {
  std::string text = request.default_() ? "default"
                     : request.target_case() == v1::SetQuotaRequest::kUid
                         ? Tenant{request.uid(), request.tenant_name()}.Text()
                         : absl::StrCat("session ", request.session());
  absl::StrAppend(&text,
                  request.has_device() ? absl::StrCat(", device ", request.device()) : ", each device");
  return absl::StrCat(text, ": ", request.has_bytes() ? absl::StrCat(request.bytes(), " bytes") : "none");
}

}  // namespace

class Control::Service final : public v1::Control::Service {
 public:
  Service(lane::Lanes& lanes, Options options)
      : lanes_(lanes), options_(std::move(options)), started_ns_(NowNs()), trace_(lanes) {}

  // Wakes readers that wait for events with an error: the daemon is ending.
  void EndEvents() {
    lanes_.registry().events().End();
    if (options_.log != nullptr) options_.log->End();
  }

  grpc::Status GetVersion(grpc::ServerContext*, const v1::GetVersionRequest*,
                          v1::GetVersionResponse* out) override {
    out->set_version(XPUD_VERSION);
    out->set_protocol_min(wire::kOldestVersion);
    out->set_protocol_max(wire::kNewestVersion);
    out->set_build("clang " __clang_version__);
    out->set_level_zero(executor::LevelZeroVersion());
    return grpc::Status::OK;
  }
  grpc::Status ListDevices(grpc::ServerContext*, const v1::ListDevicesRequest*,
                           v1::ListDevicesResponse* out) override {
    const std::vector<SensorSample> sensors = options_.sensors->Take();
    out->set_time_ns(NowNs());
    lanes_.VisitEach([&](lane::Lane& lane) { Fill(lane, *out->add_devices()); });
    for (int d = 0; d < out->devices_size(); ++d)
      Fill(sensors[static_cast<size_t>(d)], *out->mutable_devices(d));
    return grpc::Status::OK;
  }
  grpc::Status ListSessions(grpc::ServerContext*, const v1::ListSessionsRequest*,
                            v1::ListSessionsResponse* out) override {
    out->set_time_ns(NowNs());
    WorkBySession work;
    AddWork(work);
    ListSessionsInto(work, MemoryNow(), [&] { return out->add_sessions(); });
    return grpc::Status::OK;
  }
  grpc::Status GetStatus(grpc::ServerContext*, const v1::GetStatusRequest*,
                         v1::GetStatusResponse* out) override {
    const std::vector<SensorSample> sensors = options_.sensors->Take();
    out->set_time_ns(NowNs());
    FillDaemon(*out->mutable_daemon());
    WorkBySession work;
    lanes_.VisitEach([&](lane::Lane& lane) { Fill(lane, *out->add_devices()); });
    AddWork(work);
    for (uint32_t index = 0; index < lanes_.size(); ++index)
      Fill(sensors[index], *out->mutable_devices(static_cast<int>(index)));
    const TenantTotals tenants = TenantsNow();
    ListClaimsInto(lanes_.registry().claims().List(), tenants, [&] { return out->add_claims(); });
    const std::vector<memory::DeviceMemory> memory = MemoryNow();
    ListSessionsInto(work, memory, [&] { return out->add_sessions(); });
    ListMemoryInto(memory, *out->mutable_device_memory(), *out->mutable_tenant_memory());
    ListEndedInto(memory, *out->mutable_tenant_memory());
    for (const auto& [name, total] : tenants.map()) {
      Fill(name, total, *out->add_tenants());
      for (const auto& [device, counters] : total.counters) {
        v1::TenantTimes& times = *out->add_tenant_times();
        times.set_device(device);
        times.set_tenant(name);
        Fill(counters.queue_wait, *times.mutable_queue_wait());
        Fill(counters.held.for_lower, *times.mutable_for_lower());
        for (size_t cause = 0; cause < kHeldCauses; ++cause) {
          if (counters.held.ns[cause] == 0) continue;
          v1::HeldTime& held = *times.add_held();
          held.set_cause(kHeldCauseNames[cause]);
          held.set_ns(counters.held.ns[cause]);
        }
        Fill(counters.latency, *times.mutable_latency());
        Fill(counters.duration, *times.mutable_duration());
      }
    }
    return grpc::Status::OK;
  }
  grpc::Status ListMemory(grpc::ServerContext*, const v1::ListMemoryRequest*,
                          v1::ListMemoryResponse* out) override {
    out->set_time_ns(NowNs());
    ListMemoryInto(MemoryNow(), *out->mutable_devices(), *out->mutable_tenants());
    return grpc::Status::OK;
  }
  grpc::Status ListQuotas(grpc::ServerContext*, const v1::ListQuotasRequest*,
                          v1::ListQuotasResponse* out) override {
    ListQuotasInto(*out);
    return grpc::Status::OK;
  }
  grpc::Status SetQuota(grpc::ServerContext*, const v1::SetQuotaRequest* request,
                        v1::ListQuotasResponse* out) override {
    const absl::Status status = ApplyQuota(*request);
    if (!status.ok()) return ToGrpc(status);
    lanes_.registry().events().Add({.kind = "quota_set", .text = Describe(*request)});
    ListQuotasInto(*out);
    return grpc::Status::OK;
  }
  grpc::Status CloseSession(grpc::ServerContext*, const v1::CloseSessionRequest* request,
                            v1::Session* out) override {
    const auto session = FindSession(request->session());
    if (!session.ok()) return ToGrpc(session.status());
    Fill(**session, *out);
    Work work;
    lanes_.VisitEach([&](lane::Lane& lane) {
      if (const session::DeviceSession* part = lane.Find(request->session())) work.Add(lane.index(), *part);
    });
    work.CopyTo(*out);
    lanes_.Evict(**session, "session closed by an operator");
    return grpc::Status::OK;
  }
  grpc::Status SetNice(grpc::ServerContext*, const v1::SetNiceRequest* request,
                       v1::SetNiceResponse* out) override {
    const auto session = FindSession(request->session());
    if (!session.ok()) return ToGrpc(session.status());
    const auto before = lanes_.SetNice(*session, request->nice(), /*may_raise=*/true);
    if (!before.ok()) return ToGrpc(before.status());
    out->set_before(*before);
    out->set_nice(request->nice());
    return grpc::Status::OK;
  }
  grpc::Status SetDrain(grpc::ServerContext*, const v1::SetDrainRequest* request,
                        v1::SetDrainResponse* out) override {
    session::Registry& registry = lanes_.registry();
    registry.SetDrained(request->drained());
    out->set_drained(registry.drained());
    out->set_sessions(static_cast<uint32_t>(registry.List().size()));
    return grpc::Status::OK;
  }
  grpc::Status ListLog(grpc::ServerContext*, const v1::ListLogRequest* request,
                       v1::ListLogResponse* out) override {
    if (options_.log == nullptr) return grpc::Status::OK;
    return ToGrpc(event_readers_.List(*options_.log, *request, *out));
  }
  grpc::Status GetConfig(grpc::ServerContext*, const v1::GetConfigRequest*,
                         v1::GetConfigResponse* out) override {
    out->set_time_ns(NowNs());
    if (options_.configuration == nullptr) return grpc::Status::OK;
    for (const ConfigValue& value : options_.configuration()) {
      v1::ConfigValue& row = *out->add_values();
      row.set_key(value.key);
      row.set_value(value.value);
      row.set_origin(value.origin);
      row.set_live(value.live);
      if (!value.pending.empty()) row.set_pending(value.pending);
    }
    return grpc::Status::OK;
  }
  grpc::Status StartProfile(grpc::ServerContext*, const v1::StartProfileRequest* request,
                            v1::StartProfileResponse* out) override {
    return ToGrpc(trace_.Start(*request, *out));
  }
  grpc::Status StopProfile(grpc::ServerContext*, const v1::StopProfileRequest* request,
                           v1::StopProfileResponse* out) override {
    return ToGrpc(trace_.Stop(*request, *out));
  }
  grpc::Status ListProfiles(grpc::ServerContext*, const v1::ListProfilesRequest*,
                            v1::ListProfilesResponse* out) override {
    trace_.List(*out);
    return grpc::Status::OK;
  }
  grpc::Status ReadProfile(grpc::ServerContext*, const v1::ReadProfileRequest* request,
                           v1::ReadProfileResponse* out) override {
    return ToGrpc(trace_.Read(*request, *out));
  }
  grpc::Status ReadMemoryHistory(grpc::ServerContext*, const v1::ReadMemoryHistoryRequest* request,
                                 v1::ReadMemoryHistoryResponse* out) override {
    return ToGrpc(trace_.Read(*request, *out));
  }
  grpc::Status ReadFlight(grpc::ServerContext*, const v1::ReadFlightRequest* request,
                          v1::ReadFlightResponse* out) override {
    return ToGrpc(trace_.Read(*request, *out));
  }
  grpc::Status ListEvents(grpc::ServerContext*, const v1::ListEventsRequest* request,
                          v1::ListEventsResponse* out) override {
    out->set_time_ns(NowNs());
    return ToGrpc(event_readers_.List(lanes_.registry().events(), *request, *out));
  }
  grpc::Status CreateClaim(grpc::ServerContext*, const v1::CreateClaimRequest* request,
                           v1::Claim* out) override {
    return Answer(Create(*request), *out);
  }
  grpc::Status UpdateClaim(grpc::ServerContext*, const v1::UpdateClaimRequest* request,
                           v1::Claim* out) override {
    const auto& paths = request->update_mask().paths();
    const bool renews = std::ranges::find(paths, "lifetime_ms") != paths.end();
    return Answer(Desk().Update(request->claim().key(), renews,
                                [&](const Claim& claim) { return Changed(claim, *request, lanes_.size()); }),
                  *out);
  }
  grpc::Status DeleteClaim(grpc::ServerContext* context, const v1::DeleteClaimRequest* request,
                           v1::DeleteClaimResponse* out) override {
    const auto ended = Desk().Delete(request->key(), [&] { return context->IsCancelled(); });
    if (!ended.ok()) return ToGrpc(ended.status());
    out->set_sessions(ended->sessions);
    out->set_memory_bytes(ended->memory_bytes);
    return grpc::Status::OK;
  }
  grpc::Status ListClaims(grpc::ServerContext*, const v1::ListClaimsRequest* request,
                          v1::ListClaimsResponse* out) override {
    out->set_time_ns(NowNs());
    const std::vector<Claims::Entry> claims = lanes_.registry().claims().List();
    if (request->only_granted()) {
      ListClaimsInto(claims, TenantTotals(), [&] { return out->add_claims(); });
      return grpc::Status::OK;
    }
    ListClaimsInto(claims, TenantsNow(), [&] { return out->add_claims(); });
    uint32_t device = 0;
    for (const Guaranteeable& left : Desk().LeftBeside(claims)) {
      v1::Guaranteeable& row = *out->add_guaranteeable();
      row.set_device(device++);
      row.set_memory_bytes(left.memory);
      row.set_time(left.time);
    }
    return grpc::Status::OK;
  }

 private:
  ClaimDesk& Desk() { return *options_.claims; }
  absl::StatusOr<Claims::Entry> Create(const v1::CreateClaimRequest& request) {
    ASSIGN_OR_RETURN(const Claim claim, ReadClaim(request.claim(), lanes_.size()));
    return Desk().Create(claim);
  }
  grpc::Status Answer(const absl::StatusOr<Claims::Entry>& entry, v1::Claim& out) {
    if (!entry.ok()) return ToGrpc(entry.status());
    Fill(*entry, Desk(), out);
    return grpc::Status::OK;
  }
  TenantTotals TenantsNow() {
    TenantTotals tenants = lanes_.registry().Tenants();
    for (uint32_t index = 0; index < lanes_.size(); ++index) {
      TenantTotals here;
      lanes_[index].Visit([&] { here = lanes_[index].Tenants(); });
      tenants += here;
    }
    return tenants;
  }
  void ListClaimsInto(const std::vector<Claims::Entry>& claims, const TenantTotals& tenants,
                      absl::FunctionRef<v1::Claim*()> add) {
    for (const Claims::Entry& entry : claims) {
      v1::Claim& out = *add();
      Fill(entry, Desk(), out);
      const auto found = tenants.map().find(entry.claim.tenant().Text());
      if (found == tenants.map().end()) continue;
      out.set_memory_bytes(found->second.memory_bytes);
      out.set_busy_ns(found->second.AllCounters().busy_ns);
    }
  }
  absl::StatusOr<std::shared_ptr<session::Session>> FindSession(uint64_t id) {
    if (auto session = lanes_.registry().Find(id)) return session;
    return absl::InvalidArgumentError(absl::StrCat("there is no session ", id));
  }
  absl::Status ApplyQuota(const v1::SetQuotaRequest& request) {
    if (request.has_device() && request.device() >= lanes_.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("there is no device ", request.device(), "; there are ", lanes_.size()));
    }
    if (request.target_case() == v1::SetQuotaRequest::TARGET_NOT_SET)
      return absl::InvalidArgumentError("a quota needs a target: the default, a user or a session");
    std::shared_ptr<session::Session> session;
    if (request.target_case() == v1::SetQuotaRequest::kSession) {
      ASSIGN_OR_RETURN(session, FindSession(request.session()));
    }
    std::optional<uint64_t> bytes;
    if (request.has_bytes()) bytes = request.bytes();
    lanes_.CallEach([&](lane::Lane& lane) {
      if (request.has_device() && request.device() != lane.index()) return;
      memory::Ledger& ledger = lane.state().pool->ledger();
      if (request.target_case() == v1::SetQuotaRequest::kDefault) return ledger.SetDefaultQuota(bytes);
      if (request.target_case() == v1::SetQuotaRequest::kUid)
        return ledger.SetTenantQuota({request.uid(), request.tenant_name()}, bytes);
      session->SetQuota(lane.index(), bytes);
      const session::DeviceSession* const part = lane.Find(session->id());
      if (part != nullptr) ledger.SetQuota(part->account(), bytes);
    });
    return absl::OkStatus();
  }
  void ListQuotasInto(v1::ListQuotasResponse& out) {
    out.set_time_ns(NowNs());
    const auto sessions = lanes_.registry().List();
    lanes_.VisitEach([&](lane::Lane& lane) { ListQuotasInto(lane, sessions, out); });
  }
  // REQUIRES: the lane's thread.
  static void ListQuotasInto(lane::Lane& lane, std::span<const std::shared_ptr<session::Session>> sessions,
                             v1::ListQuotasResponse& out) {
    const memory::Ledger& ledger = lane.state().pool->ledger();
    std::map<Tenant, uint64_t> used;
    lane.ForEach([&](const session::DeviceSession& part) {
      used[part.peer().tenant] += part.allocated_bytes() - part.shared_bytes();
    });
    for (const auto& [tenant, memory] : lane.state().shared->tenants()) used[tenant] += memory.bytes;
    AddQuota(lane.index(), ledger.default_quota(), ledger.default_quota(), out).set_default_(true);
    for (const auto& [tenant, share] : ledger.tenants()) {
      v1::Quota& quota = AddQuota(lane.index(), share.quota, ledger.QuotaOf(share), out);
      if (tenant.claim.empty())
        quota.set_uid(tenant.uid);
      else
        quota.set_claim(tenant.claim);
      if (!tenant.name.empty()) quota.set_tenant_name(tenant.name);
      quota.set_credit_bytes(share.credit);
      quota.set_used_bytes(used[tenant]);
    }
    for (const auto& session : sessions) {
      const std::optional<uint64_t> own = session->quota(lane.index());
      v1::Quota& quota = AddQuota(lane.index(), own, ledger.QuotaOf(session->peer().tenant, own), out);
      quota.set_session(session->id());
      const session::DeviceSession* const part = lane.Find(session->id());
      if (part == nullptr) continue;  // it has not opened the device
      quota.set_credit_bytes(part->account().credit());
      quota.set_used_bytes(part->allocated_bytes());
    }
  }
  void FillDaemon(v1::Daemon& out) {
    const session::Registry::Counters counters = lanes_.registry().counters();
    out.set_version(XPUD_VERSION);
    out.set_pid(getpid());
    out.set_uid(geteuid());
    out.set_uptime_ns(NowNs() - started_ns_);
    out.set_socket(options_.client_socket);
    out.set_private_daemon(options_.private_daemon);
    out.set_sessions_opened(counters.opened);
    out.set_sessions_closed_for_fault(counters.closed_for_fault);
    out.set_drained(lanes_.registry().drained());
    out.set_resident_bytes(ResidentBytes());
    out.set_cpu_ns(CpuNs());
    rlimit files = {};
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) out.set_file_limit(files.rlim_cur);
    out.set_cache_directory(options_.cache_directory);
    if (options_.compiles != nullptr) Fill(options_.compiles->state(), *out.mutable_compiler());
  }
  void AddWork(WorkBySession& work) {
    constexpr size_t kSessionPiece = 16;  // in a visit
    lanes_.VisitSessions(kSessionPiece, [&](lane::Lane& lane, const session::DeviceSession& session) {
      work[session.id()].Add(lane.index(), session);
    });
  }
  // By device.
  std::vector<memory::DeviceMemory> MemoryNow() {
    std::vector<memory::DeviceMemory> all;
    lanes_.VisitEach([&](lane::Lane& lane) {
      all.push_back(lane.state().pool->Usage());
      lane.state().shared->AddTo(all.back());
      if (lane.state().merger != nullptr) lane.state().merger->AddTo(all.back());
    });
    return all;
  }
  static void ListMemoryInto(std::span<const memory::DeviceMemory> memory,
                             google::protobuf::RepeatedPtrField<v1::DeviceMemory>& devices,
                             google::protobuf::RepeatedPtrField<v1::TenantMemory>& tenants) {
    for (const memory::DeviceMemory& usage : memory) {
      const auto device = static_cast<uint32_t>(devices.size());
      Fill(device, usage, *devices.Add());
      for (const auto& [tenant, of_tenant] : usage.tenants) Fill(device, tenant, of_tenant, *tenants.Add());
    }
  }
  // Counters of tenants without sessions, for metrics.
  static void ListEndedInto(std::span<const memory::DeviceMemory> memory,
                            google::protobuf::RepeatedPtrField<v1::TenantMemory>& tenants) {
    for (size_t device = 0; device < memory.size(); ++device) {
      for (const auto& [tenant, counters] : memory[device].ended) {
        v1::TenantMemory& out = *tenants.Add();
        out.set_device(static_cast<uint32_t>(device));
        out.set_tenant(tenant);
        out.set_moved_in_total_bytes(counters.in);
        out.set_moved_out_total_bytes(counters.out);
        out.set_copied_at_write_bytes(counters.copied_at_write);
        Fill(counters.stalls, *out.mutable_stalls());
      }
    }
  }
  void ListSessionsInto(const WorkBySession& work, std::span<const memory::DeviceMemory> memory,
                        absl::FunctionRef<v1::Session*()> add) {
    for (const auto& session : lanes_.registry().List()) {
      v1::Session& out = *add();
      Fill(*session, out);
      if (const auto found = work.find(session->id()); found != work.end()) found->second.CopyTo(out);
      uint64_t moved_out = 0, saved = 0;
      for (const memory::DeviceMemory& usage : memory) {
        const auto found = usage.tenants.find(session->peer().tenant);
        if (found == usage.tenants.end()) continue;
        moved_out += found->second.moved_out;
        saved += found->second.saved;
      }
      out.set_tenant_moved_out_bytes(moved_out);
      out.set_tenant_saved_bytes(saved);
    }
  }

  lane::Lanes& lanes_;
  const Options options_;
  const uint64_t started_ns_;
  EventReaders event_readers_;
  RecordReader trace_;
};

struct Control::Server {
  std::unique_ptr<grpc::Server> server;
};

Control::Control() = default;

absl::StatusOr<std::unique_ptr<Control>> Control::Start(lane::Lanes& lanes, Options options,
                                                        UniqueFd handed) {
  RETURN_IF_ERROR(CheckThreadsLeft(kThreadsOfGrpc, "the control plane"));
  std::unique_ptr<Control> control(new Control);
  const std::string path = ControlPath(options.client_socket);
  if (!handed.valid()) RETURN_IF_ERROR(RemoveStaleSocket(path));
  control->service_ = std::make_unique<Service>(lanes, std::move(options));
  control->server_ = std::make_unique<Server>();
  grpc::ServerBuilder builder;
  if (!handed.valid()) builder.AddListeningPort("unix:" + path, grpc::InsecureServerCredentials());
  SetSmall(builder);
  builder.RegisterService(control->service_.get());
  const mode_t mask = umask(0177);
  control->server_->server = builder.BuildAndStart();
  umask(mask);
  if (control->server_->server == nullptr)
    return absl::InternalError(absl::StrCat("cannot serve the control plane at ", path));
  if (!handed.valid()) {
    control->path_ = path;
    return control;
  }
  ASSIGN_OR_RETURN(control->acceptor_,
                   Acceptor::Start(std::move(handed), [server = control->server_->server.get()](UniqueFd fd) {
                     grpc::AddInsecureChannelFromFd(server, fd.Release());
                   }));
  return control;
}

void Control::TakeSnapshot(v1::GetStatusResponse& out) { (void)service_->GetStatus(nullptr, nullptr, &out); }

v1::Control::Service& Control::service() { return *service_; }

Control::~Control() {
  acceptor_.reset();
  if (server_ != nullptr && server_->server != nullptr) {
    service_->EndEvents();
    // On the monotonic clock, so that setting the machine's time does not prolong it.
    server_->server->Shutdown(
        gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_seconds(1, GPR_TIMESPAN)));
  }
  if (!path_.empty()) unlink(path_.c_str());
}

}  // namespace xpud::service
