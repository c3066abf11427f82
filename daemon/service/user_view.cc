#include "daemon/service/user_view.h"

#include <grpc/support/time.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/server_posix.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <numeric>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "daemon/service/control.h"
#include "daemon/service/control_records.h"
#include "daemon/service/small_server.h"
#include "proto/base/mutex.h"
#include "proto/base/start_thread.h"
#include "proto/base/status_macros.h"
#include "proto/control/grpc_status.h"
#include "proto/control/xpud.grpc.pb.h"

namespace xpud::service {
namespace {

using Clock = std::chrono::steady_clock;

// Delays calls that come faster than kCallsPerSecond. Thread-safe.
class Pace {
 public:
  void Wait() {
    Clock::time_point turn;
    {
      const MutexLock lock(mutex_);
      turn = std::max(next_, Clock::now());
      next_ = turn + kPeriod;
    }
    std::this_thread::sleep_until(turn);
  }

 private:
  static constexpr std::chrono::nanoseconds kPeriod =
      std::chrono::nanoseconds(std::chrono::seconds(1)) / UserView::kCallsPerSecond;

  Mutex mutex_;
  Clock::time_point next_ ABSL_GUARDED_BY(mutex_);
};

// Removes what `is_hidden` says, and keeps the order of the rest.
template <typename Field, typename IsHidden>
void Remove(Field& field, IsHidden is_hidden) {
  field.erase(std::remove_if(field.begin(), field.end(), is_hidden), field.end());
}

}  // namespace

std::vector<uint32_t> DevicesOf(const Tenant& tenant, const lane::Lanes& lanes) {
  if (const auto claim = lanes.registry().claims().Find(tenant)) return claim->devices;
  std::vector<uint32_t> all(lanes.size());
  std::iota(all.begin(), all.end(), 0);
  return all;
}

class UserView::Service final : public v1::Control::Service {
 public:
  // `devices`: those that the user sees, by its numbers.
  Service(Control& control, lane::Lanes& lanes, const Tenant& viewer, std::vector<uint32_t> devices)
      : devices_(std::move(devices)),
        all_(control.service()),
        lanes_(lanes),
        user_(viewer),
        viewer_(viewer.Text()),
        trace_(lanes, viewer) {}

  grpc::Status GetVersion(grpc::ServerContext* context, const v1::GetVersionRequest* request,
                          v1::GetVersionResponse* out) override {
    pace_.Wait();
    return all_.GetVersion(context, request, out);
  }
  grpc::Status ListDevices(grpc::ServerContext* context, const v1::ListDevicesRequest* request,
                           v1::ListDevicesResponse* out) override {
    pace_.Wait();
    const grpc::Status status = all_.ListDevices(context, request, out);
    KeepOwnDevices(*out->mutable_devices());
    return status;
  }
  grpc::Status ListSessions(grpc::ServerContext* context, const v1::ListSessionsRequest* request,
                            v1::ListSessionsResponse* out) override {
    pace_.Wait();
    const grpc::Status status = all_.ListSessions(context, request, out);
    KeepOwnSessions(*out->mutable_sessions());
    return status;
  }
  grpc::Status GetStatus(grpc::ServerContext* context, const v1::GetStatusRequest* request,
                         v1::GetStatusResponse* out) override {
    pace_.Wait();
    const grpc::Status status = all_.GetStatus(context, request, out);
    KeepOwnDevices(*out->mutable_devices());
    KeepOwnSessions(*out->mutable_sessions());
    RemoveOthers(*out->mutable_tenants());
    RemoveOthers(*out->mutable_tenant_times());
    Renumber(*out->mutable_tenant_times());
    KeepOwnClaim(*out->mutable_claims());
    KeepOwnMemory(*out->mutable_device_memory(), *out->mutable_tenant_memory());
    return status;
  }
  grpc::Status StartProfile(grpc::ServerContext*, const v1::StartProfileRequest* request,
                            v1::StartProfileResponse* out) override {
    pace_.Wait();
    return ToGrpc(trace_.Start(*request, *out));
  }
  grpc::Status StopProfile(grpc::ServerContext*, const v1::StopProfileRequest* request,
                           v1::StopProfileResponse* out) override {
    pace_.Wait();
    return ToGrpc(trace_.Stop(*request, *out));
  }
  grpc::Status ListProfiles(grpc::ServerContext*, const v1::ListProfilesRequest*,
                            v1::ListProfilesResponse* out) override {
    pace_.Wait();
    trace_.List(*out);
    Renumber(*out->mutable_profiles());
    return grpc::Status::OK;
  }
  grpc::Status ReadProfile(grpc::ServerContext*, const v1::ReadProfileRequest* request,
                           v1::ReadProfileResponse* out) override {
    pace_.Wait();
    return ReadOfDevice(*request, *out);
  }
  grpc::Status ReadMemoryHistory(grpc::ServerContext*, const v1::ReadMemoryHistoryRequest* request,
                                 v1::ReadMemoryHistoryResponse* out) override {
    pace_.Wait();
    return ReadOfDevice(*request, *out);
  }
  grpc::Status ReadFlight(grpc::ServerContext*, const v1::ReadFlightRequest* request,
                          v1::ReadFlightResponse* out) override {
    pace_.Wait();
    const absl::Status status = trace_.Read(*request, *out);
    Renumber(*out->mutable_flights());
    return ToGrpc(status);
  }

  // What the user has, and what is known of its devices.
  grpc::Status ListMemory(grpc::ServerContext* context, const v1::ListMemoryRequest* request,
                          v1::ListMemoryResponse* out) override {
    pace_.Wait();
    const grpc::Status status = all_.ListMemory(context, request, out);
    KeepOwnMemory(*out->mutable_devices(), *out->mutable_tenants());
    return status;
  }
  // The default, which may be the user's, the user's own, and those of its sessions.
  grpc::Status ListQuotas(grpc::ServerContext* context, const v1::ListQuotasRequest* request,
                          v1::ListQuotasResponse* out) override {
    pace_.Wait();
    const grpc::Status status = all_.ListQuotas(context, request, out);
    Remove(*out->mutable_quotas(), [&](const v1::Quota& quota) {
      if (quota.target_case() == v1::Quota::kSession) return FindOwn(quota.session()) == nullptr;
      if (quota.target_case() == v1::Quota::kClaim) return quota.claim() != user_.claim;
      return quota.target_case() == v1::Quota::kUid && Tenant{quota.uid(), quota.tenant_name()} != user_;
    });
    Renumber(*out->mutable_quotas());
    return status;
  }
  grpc::Status SetQuota(grpc::ServerContext*, const v1::SetQuotaRequest*, v1::ListQuotasResponse*) override {
    return Deny("set quotas");
  }
  // A session of another user is not there for this one.
  grpc::Status CloseSession(grpc::ServerContext* context, const v1::CloseSessionRequest* request,
                            v1::Session* out) override {
    pace_.Wait();
    const auto session = FindOwn(request->session());
    if (session == nullptr)
      return ToGrpc(absl::InvalidArgumentError(absl::StrCat("there is no session ", request->session())));
    v1::ListSessionsResponse list;
    const grpc::Status status = all_.ListSessions(context, nullptr, &list);
    KeepOwnSessions(*list.mutable_sessions());
    for (const v1::Session& each : list.sessions())
      if (each.id() == request->session()) *out = each;
    lanes_.Evict(*session, "session closed by its user, with xpuctl kill");
    return status;
  }
  grpc::Status SetNice(grpc::ServerContext*, const v1::SetNiceRequest* request,
                       v1::SetNiceResponse* out) override {
    pace_.Wait();
    const auto session = FindOwn(request->session());
    if (session == nullptr)
      return ToGrpc(absl::InvalidArgumentError(absl::StrCat("there is no session ", request->session())));
    const auto before = lanes_.SetNice(session, request->nice(), /*may_raise=*/false);
    if (!before.ok()) return ToGrpc(before.status());
    out->set_before(*before);
    out->set_nice(request->nice());
    return grpc::Status::OK;
  }
  grpc::Status SetDrain(grpc::ServerContext*, const v1::SetDrainRequest*, v1::SetDrainResponse*) override {
    return Deny("drain the daemon");
  }
  grpc::Status CreateClaim(grpc::ServerContext*, const v1::CreateClaimRequest*, v1::Claim*) override {
    return Deny("make claims");
  }
  grpc::Status UpdateClaim(grpc::ServerContext*, const v1::UpdateClaimRequest*, v1::Claim*) override {
    return Deny("change claims");
  }
  grpc::Status DeleteClaim(grpc::ServerContext*, const v1::DeleteClaimRequest*,
                           v1::DeleteClaimResponse*) override {
    return Deny("delete claims");
  }
  // The user's own, if it has one.
  grpc::Status ListClaims(grpc::ServerContext* context, const v1::ListClaimsRequest*,
                          v1::ListClaimsResponse* out) override {
    pace_.Wait();
    v1::GetStatusResponse all;
    const grpc::Status status = all_.GetStatus(context, nullptr, &all);
    out->set_time_ns(all.time_ns());
    out->mutable_claims()->Swap(all.mutable_claims());
    KeepOwnClaim(*out->mutable_claims());
    return status;
  }
  grpc::Status ListEvents(grpc::ServerContext*, const v1::ListEventsRequest*,
                          v1::ListEventsResponse*) override {
    return Deny("see events");
  }
  grpc::Status ListLog(grpc::ServerContext*, const v1::ListLogRequest*, v1::ListLogResponse*) override {
    return Deny("see the log");
  }
  grpc::Status GetConfig(grpc::ServerContext*, const v1::GetConfigRequest*, v1::GetConfigResponse*) override {
    return Deny("see the configuration");
  }

 private:
  // Of requests with a field `device`, which has the user's number.
  template <typename Request, typename Response>
  grpc::Status ReadOfDevice(const Request& request, Response& out) {
    Request asked = request;
    if (request.device() >= devices_.size())
      return ToGrpc(absl::InvalidArgumentError(absl::StrCat("there is no device ", request.device())));
    asked.set_device(devices_[request.device()]);
    return ToGrpc(trace_.Read(asked, out));
  }
  // Of messages with a field `tenant`.
  template <typename Field>
  void RemoveOthers(Field& field) const {
    Remove(field, [&](const auto& each) { return each.tenant() != viewer_; });
  }
  // Of messages with a field `device`: removes those of other devices, and has them name ours by our numbers.
  template <typename Field>
  void Renumber(Field& field) const {
    Remove(field, [&](const auto& each) { return !NumberOf(each.device()); });
    for (auto& each : field) each.set_device(*NumberOf(each.device()));
  }
  // Likewise, and sorts them.
  template <typename Field>
  void RenumberInOrder(Field& field) const {
    Renumber(field);
    std::sort(field.begin(), field.end(),
              [](const auto& a, const auto& b) { return a.device() < b.device(); });
  }
  // The same for messages with a field `index`.
  template <typename Field>
  void KeepOwnDevices(Field& field) const {
    Remove(field, [&](const auto& each) { return !NumberOf(each.index()); });
    for (auto& each : field) each.set_index(*NumberOf(each.index()));
    std::sort(field.begin(), field.end(), [](const auto& a, const auto& b) { return a.index() < b.index(); });
  }
  template <typename Field>
  void KeepOwnSessions(Field& sessions) const {
    RemoveOthers(sessions);
    for (v1::Session& session : sessions) KeepOwnDevices(*session.mutable_devices());
  }
  template <typename Field>
  void KeepOwnClaim(Field& claims) const {
    Remove(claims, [&](const v1::Claim& claim) { return claim.key() != user_.claim; });
  }
  template <typename Devices, typename Tenants>
  void KeepOwnMemory(Devices& devices, Tenants& tenants) const {
    RemoveOthers(tenants);
    RenumberInOrder(tenants);
    RenumberInOrder(devices);
  }
  std::optional<uint32_t> NumberOf(uint32_t lane) const {
    const auto found = std::ranges::find(devices_, lane);
    if (found == devices_.end()) return std::nullopt;
    return static_cast<uint32_t>(found - devices_.begin());
  }
  static grpc::Status Deny(const char* what) {
    return {grpc::StatusCode::PERMISSION_DENIED,
            absl::StrCat("only operators may ", what,
                         ": root, the daemon's user, and who may open control.sock")};
  }

  std::shared_ptr<session::Session> FindOwn(uint64_t id) const {
    auto session = lanes_.registry().Find(id);
    return session != nullptr && session->peer().tenant == user_ ? session : nullptr;
  }

  const std::vector<uint32_t> devices_;  // lanes, by the user's numbers
  v1::Control::Service& all_;
  lane::Lanes& lanes_;
  const Tenant user_;
  const std::string viewer_;  // as `user_` is in messages
  RecordReader trace_;
  Pace pace_;
};

struct UserView::Server {
  std::unique_ptr<Service> service;
  std::unique_ptr<grpc::Server> server;
};

UserView::UserView(std::unique_ptr<Server> server) : server_(std::move(server)) {}

absl::StatusOr<std::unique_ptr<UserView>> UserView::Start(Control& control, lane::Lanes& lanes,
                                                          const Tenant& viewer, UniqueFd connection) {
  RETURN_IF_ERROR(CheckThreadsLeft(kThreadsOfAServer, "a view"));
  auto server = std::make_unique<Server>();
  server->service = std::make_unique<Service>(control, lanes, viewer, DevicesOf(viewer, lanes));
  grpc::ServerBuilder builder;
  SetSmall(builder);
  // The user may send whatever it wants. Threads are for the pollers too.
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kMaxCalls);
  builder.SetResourceQuota(grpc::ResourceQuota().SetMaxThreads(2 * kMaxCalls));
  builder.RegisterService(server->service.get());
  server->server = builder.BuildAndStart();
  if (server->server == nullptr) return absl::InternalError("cannot serve the control plane");
  grpc::AddInsecureChannelFromFd(server->server.get(), connection.Release());
  return std::unique_ptr<UserView>(new UserView(std::move(server)));
}

UserView::~UserView() { server_->server->Shutdown(gpr_now(GPR_CLOCK_MONOTONIC)); }

}  // namespace xpud::service
