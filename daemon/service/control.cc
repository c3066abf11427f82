#include "daemon/service/control.h"

#include <grpc/support/time.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/server_posix.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <optional>
#include <span>
#include <vector>

#include "absl/strings/str_cat.h"
#include "daemon/executor/level_zero/driver.h"
#include "daemon/service/control_events.h"
#include "daemon/service/handed_sockets.h"
#include "daemon/service/sensor_sampler.h"
#include "daemon/service/socket_file.h"
#include "proto/base/clock.h"
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

void Fill(const session::DeviceState& state, uint32_t index, uint32_t queues, v1::Device& out) {
  const executor::DeviceProperties& properties = state.device->properties();
  out.set_index(index);
  out.set_name(properties.name);
  out.set_kind(properties.kind);
  out.set_vendor(properties.vendor);
  out.set_driver("libze_xpud " XPUD_VERSION);
  out.set_compute_units(properties.compute_units);
  out.set_memory_total_bytes(properties.total_memory);
  out.set_memory_used_bytes(state.pool->used_bytes());
  out.set_pool_bytes(state.pool->chunk_bytes());
  out.set_pool_peak_bytes(state.pool->peak_bytes());
  out.set_busy_ns(state.time.busy_ns());
  out.set_commands_completed(state.commands);
  out.set_launches(state.launches);
  out.set_queues(queues);
  const kernels::KernelCounters kernels = state.library->counters();
  out.set_kernels_compiled(kernels.compiled);
  out.set_kernel_cache_hits(kernels.memory_hits);
  out.set_kernel_disk_cache_hits(kernels.disk_hits);
  out.set_kernel_shared_hits(kernels.shared_hits);
  out.set_kernel_compiles_failed(kernels.failed);
  out.set_kernel_compile_ns(kernels.compile_ns);
  const executor::ExecutorStatus executor = state.device->executor();
  if (executor.pid != 0) out.set_executor_pid(executor.pid);
  if (!properties.replaceable) return;
  out.set_executors_replaced(executor.replaced);
  out.set_launches_replayed(state.device->replayed_launches());
}

void Fill(const session::Session& session, std::span<const session::DeviceState> devices, v1::Session& out) {
  out.set_id(session.id());
  out.set_pid(session.peer().pid);
  const Tenant& tenant = session.peer().tenant;
  out.set_uid(tenant.uid);
  if (!tenant.name.empty()) out.set_tenant_name(tenant.name);
  out.set_tenant(tenant.Text());
  out.set_client_name(session.peer().name);
  out.set_age_ns(NowNs() - session.opened_ns());
  out.set_memory_peak_bytes(session.peak_bytes());
  out.set_buffers(session.buffer_count());
  out.set_queues(static_cast<uint32_t>(session.queue_count()));
  session.counters().CopyTo(out);
  out.set_host_memory_bytes(session.host_memory_bytes());
  uint64_t bytes = 0;
  for (uint32_t d = 0; d < devices.size(); ++d) {
    bytes += session.allocated_bytes(d);
    v1::SessionDevice& share = *out.add_devices();
    share.set_index(d);
    share.set_memory_bytes(session.allocated_bytes(d));
    if (devices.size() == 1)
      share.set_busy_ns(session.counters().busy_ns);
    else if (!devices[d].device->properties().synchronous)
      share.set_busy_ns(session.work(d).used_ns);
  }
  out.set_memory_bytes(bytes);
}

void Fill(const std::string& tenant, const scheduler::TenantTotals::Total& total, v1::TenantTotal& out) {
  out.set_tenant(tenant);
  out.set_sessions(total.sessions);
  out.set_sessions_opened(total.sessions_opened);
  out.set_memory_bytes(total.memory_bytes);
  total.counters.CopyTo(out);
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
  Service(scheduler::Engine& engine, Options options)
      : engine_(engine), options_(std::move(options)), started_ns_(NowNs()), sensors_(DevicesOf(engine)) {}

  // Wakes readers that wait for events with an error: the daemon is ending.
  void EndEvents() {
    engine_.events().End();
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
    const std::vector<SensorSample> sensors = sensors_.Take();
    engine_.Call([&] {
      out->set_time_ns(NowNs());
      ListDevicesInto(sensors, [&] { return out->add_devices(); });
    });
    return grpc::Status::OK;
  }
  grpc::Status ListSessions(grpc::ServerContext*, const v1::ListSessionsRequest*,
                            v1::ListSessionsResponse* out) override {
    engine_.Call([&] {
      out->set_time_ns(NowNs());
      ListSessionsInto([&] { return out->add_sessions(); });
    });
    return grpc::Status::OK;
  }
  grpc::Status GetStatus(grpc::ServerContext*, const v1::GetStatusRequest*,
                         v1::GetStatusResponse* out) override {
    FillProcess(*out->mutable_daemon());
    const std::vector<SensorSample> sensors = sensors_.Take();
    engine_.Call([&] {
      out->set_time_ns(NowNs());
      FillDaemon(*out->mutable_daemon());
      ListDevicesInto(sensors, [&] { return out->add_devices(); });
      ListSessionsInto([&] { return out->add_sessions(); });
      for (const auto& [name, total] : engine_.Tenants()) Fill(name, total, *out->add_tenants());
    });
    return grpc::Status::OK;
  }
  grpc::Status ListQuotas(grpc::ServerContext*, const v1::ListQuotasRequest*,
                          v1::ListQuotasResponse* out) override {
    engine_.Call([&] { ListQuotasInto(*out); });
    return grpc::Status::OK;
  }
  grpc::Status SetQuota(grpc::ServerContext*, const v1::SetQuotaRequest* request,
                        v1::ListQuotasResponse* out) override {
    absl::Status status;
    engine_.Call([&] {
      status = ApplyQuota(*request);
      if (!status.ok()) return;
      engine_.events().Add({.kind = "quota_set", .text = Describe(*request)});
      ListQuotasInto(*out);
    });
    return ToGrpc(status);
  }
  grpc::Status CloseSession(grpc::ServerContext*, const v1::CloseSessionRequest* request,
                            v1::Session* out) override {
    absl::Status status;
    engine_.Call([&] {
      const auto session = FindSession(request->session());
      status = session.status();
      if (!status.ok()) return;
      Fill(**session, engine_.devices(), *out);
      engine_.Evict(request->session(), "session closed by an operator");
    });
    return ToGrpc(status);
  }
  grpc::Status SetDrain(grpc::ServerContext*, const v1::SetDrainRequest* request,
                        v1::SetDrainResponse* out) override {
    engine_.Call([&] {
      engine_.SetDrained(request->drained());
      out->set_drained(engine_.drained());
      out->set_sessions(static_cast<uint32_t>(engine_.sessions().size()));
    });
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
  grpc::Status ListEvents(grpc::ServerContext*, const v1::ListEventsRequest* request,
                          v1::ListEventsResponse* out) override {
    out->set_time_ns(NowNs());
    return ToGrpc(event_readers_.List(engine_.events(), *request, *out));
  }

 private:
  static std::vector<executor::Device*> DevicesOf(scheduler::Engine& engine) {
    std::vector<executor::Device*> devices;
    engine.Call([&] {
      for (session::DeviceState& state : engine.devices()) devices.push_back(state.device.get());
    });
    return devices;
  }
  absl::StatusOr<const session::Session*> FindSession(uint64_t id) {
    const auto found = engine_.sessions().find(id);
    if (found != engine_.sessions().end()) return found->second.get();
    return absl::InvalidArgumentError(absl::StrCat("there is no session ", id));
  }
  absl::Status ApplyQuota(const v1::SetQuotaRequest& request) {
    auto& devices = engine_.devices();
    if (request.has_device() && request.device() >= devices.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("there is no device ", request.device(), "; there are ", devices.size()));
    }
    const session::Session* session = nullptr;
    if (request.target_case() == v1::SetQuotaRequest::kSession) {
      ASSIGN_OR_RETURN(session, FindSession(request.session()));
    }
    std::optional<uint64_t> bytes;
    if (request.has_bytes()) bytes = request.bytes();
    for (uint32_t d = 0; d < devices.size(); ++d) {
      if (request.has_device() && request.device() != d) continue;
      memory::Ledger& ledger = devices[d].pool->ledger();
      switch (request.target_case()) {
        case v1::SetQuotaRequest::kDefault:
          ledger.SetDefaultQuota(bytes);
          break;
        case v1::SetQuotaRequest::kUid:
          ledger.SetTenantQuota({request.uid(), request.tenant_name()}, bytes);
          break;
        case v1::SetQuotaRequest::kSession:
          ledger.SetQuota(session->account(d), bytes);
          break;
        default:
          return absl::InvalidArgumentError("a quota needs a target: the default, a user or a session");
      }
    }
    return absl::OkStatus();
  }
  void ListQuotasInto(v1::ListQuotasResponse& out) {
    out.set_time_ns(NowNs());
    const std::vector<const session::Session*> sessions = SortedSessions();
    for (uint32_t d = 0; d < engine_.devices().size(); ++d) {
      const memory::Ledger& ledger = engine_.devices()[d].pool->ledger();
      AddQuota(d, ledger.default_quota(), ledger.default_quota(), out).set_default_(true);
      for (const auto& [tenant, share] : ledger.tenants()) {
        v1::Quota& quota = AddQuota(d, share.quota, ledger.QuotaOf(share), out);
        quota.set_uid(tenant.uid);
        if (!tenant.name.empty()) quota.set_tenant_name(tenant.name);
        quota.set_credit_bytes(share.credit);
        uint64_t used = 0;
        for (const session::Session* session : sessions)
          used += session->peer().tenant == tenant ? session->allocated_bytes(d) : 0;
        quota.set_used_bytes(used);
      }
      for (const session::Session* session : sessions) {
        const memory::Ledger::Account& account = session->account(d);
        v1::Quota& quota = AddQuota(d, account.quota(), ledger.QuotaOf(account), out);
        quota.set_session(session->id());
        quota.set_credit_bytes(account.credit());
        quota.set_used_bytes(session->allocated_bytes(d));
      }
    }
  }
  void FillDaemon(v1::Daemon& out) {
    out.set_version(XPUD_VERSION);
    out.set_pid(getpid());
    out.set_uid(geteuid());
    out.set_uptime_ns(NowNs() - started_ns_);
    out.set_socket(options_.client_socket);
    out.set_private_daemon(options_.private_daemon);
    out.set_sessions_opened(engine_.counters().sessions_opened);
    out.set_sessions_closed_for_fault(engine_.counters().sessions_closed_for_fault);
    out.set_drained(engine_.drained());
  }
  // Fills fields that can be read without stopping the engine.
  static void FillProcess(v1::Daemon& out) {
    out.set_resident_bytes(ResidentBytes());
    out.set_cpu_ns(CpuNs());
  }
  void ListDevicesInto(std::span<const SensorSample> sensors, absl::FunctionRef<v1::Device*()> add) {
    uint32_t queues = 0;
    for (const auto& [id, session] : engine_.sessions())
      queues += static_cast<uint32_t>(session->queue_count());
    for (uint32_t d = 0; d < engine_.devices().size(); ++d) {
      v1::Device& device = *add();
      Fill(engine_.devices()[d], d, queues, device);
      Fill(sensors[d], device);
    }
  }
  void ListSessionsInto(absl::FunctionRef<v1::Session*()> add) {
    for (const session::Session* session : SortedSessions()) Fill(*session, engine_.devices(), *add());
  }
  std::vector<const session::Session*> SortedSessions() {
    std::vector<const session::Session*> sessions;
    for (const auto& [id, session] : engine_.sessions()) sessions.push_back(session.get());
    std::sort(sessions.begin(), sessions.end(), [](auto* a, auto* b) { return a->id() < b->id(); });
    return sessions;
  }

  scheduler::Engine& engine_;
  const Options options_;
  const uint64_t started_ns_;
  EventReaders event_readers_;
  SensorSampler sensors_;
};

struct Control::Server {
  std::unique_ptr<grpc::Server> server;
};

Control::Control() = default;

absl::StatusOr<std::unique_ptr<Control>> Control::Start(scheduler::Engine& engine, Options options,
                                                        UniqueFd handed) {
  std::unique_ptr<Control> control(new Control);
  const std::string path = ControlPath(options.client_socket);
  if (!handed.valid()) RETURN_IF_ERROR(RemoveStaleSocket(path));
  control->service_ = std::make_unique<Service>(engine, std::move(options));
  control->server_ = std::make_unique<Server>();
  grpc::ServerBuilder builder;
  if (!handed.valid()) builder.AddListeningPort("unix:" + path, grpc::InsecureServerCredentials());
  builder.SetSyncServerOption(grpc::ServerBuilder::SyncServerOption::NUM_CQS, 1);
  builder.SetSyncServerOption(grpc::ServerBuilder::SyncServerOption::MIN_POLLERS, 1);
  builder.SetSyncServerOption(grpc::ServerBuilder::SyncServerOption::MAX_POLLERS, 2);
  builder.SetMaxReceiveMessageSize(1 << 20);
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
