#include "deploy/agent/kubernetes/dra_server.h"

#include <spdlog/spdlog.h>

#include <chrono>
#include <ctime>
#include <functional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "deploy/agent/kubelet/health.pb.h"
#include "deploy/agent/kubelet/registration.pb.h"
#include "deploy/agent/kubernetes/dra_answers.h"
#include "deploy/agent/kubernetes/kubelet_sockets.h"
#include "deploy/agent/kubernetes/names.h"
#include "proto/base/status_macros.h"
#include "proto/base/text.h"
#include "proto/base/unix_address.h"

namespace xpud::agent::kubernetes {
namespace {

namespace dra = ::k8s::io::kubelet::pkg::apis::dra::v1;
namespace health = ::v1;
using remote::ServerCall;

constexpr std::chrono::seconds kLastCalls{5};
// The kubelet counts a device's health as unknown when it has not heard of it for 30 s.
constexpr std::chrono::seconds kHealthPeriod{10};
constexpr std::chrono::milliseconds kHealthPause{500};  // between two looks at whether the call goes on
constexpr int64_t kHealthTimeoutSeconds = 30;

// The versions of the API that have these messages.
constexpr const char* kDraVersions[] = {"v1", "v1beta1"};
constexpr const char* kHealthVersions[] = {"v1", "v1beta1", "v1alpha1"};

// Measures a call, and has its error in the log.
template <typename Call>
auto Measured(Counters& counters, const char* action, const ClaimName& name, Call call) {
  const auto began = std::chrono::steady_clock::now();
  auto result = call();
  const auto took = std::chrono::steady_clock::now() - began;
  absl::Status status;
  if constexpr (std::is_same_v<decltype(result), absl::Status>)
    status = result;
  else
    status = result.status();
  counters.AddCall(kEngineName, action, status, took);
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(took).count();
  const std::string claim = PrintableText(absl::StrCat(name.name_space, "/", name.name), 320);
  const std::string uid = PrintableText(name.uid, 64);
  if (status.ok())
    spdlog::info("{} engine=kubernetes claim={} uid={} ms={}", action, claim, uid, ms);
  else
    spdlog::warn("{}_failed engine=kubernetes claim={} uid={} ms={} reason=\"{}\"", action, claim, uid, ms,
                 std::string(status.message()));
  return result;
}

health::NodeWatchResourcesResponse HealthOf(const Inventory& inventory, const std::string& node) {
  health::NodeWatchResourcesResponse response;
  for (const DeviceState& device : inventory.devices) {
    health::DeviceHealth& out = *response.add_devices();
    out.mutable_device()->set_pool_name(node);
    out.mutable_device()->set_device_name(absl::StrCat(kDevicePrefix, device.index));
    out.set_health(device.unhealthy.empty() ? health::HEALTHY : health::UNHEALTHY);
    out.set_last_updated_time(time(nullptr));
    out.set_health_check_timeout_seconds(kHealthTimeoutSeconds);
    out.set_message(device.unhealthy);
  }
  return response;
}

}  // namespace

DraServer::DraServer(Parts parts) : parts_(std::move(parts)) {}

std::string DraServer::CallSocket() const {
  return absl::StrCat(parts_.kubelet, "/plugins/", kDriver, "/dra.sock");
}

std::string DraServer::RegistrationSocket() const { return DraRegistrationSocket(parts_.kubelet); }

void DraServer::AddRegistration() {
  using Info = pluginregistration::InfoRequest;
  using Status = pluginregistration::RegistrationStatus;
  server_.AddUnary<Info, pluginregistration::PluginInfo>(
      "/pluginregistration.Registration/GetInfo", [this](const Info&) {
        pluginregistration::PluginInfo info;
        info.set_type("DRAPlugin");
        info.set_name(kDriver);
        info.set_endpoint(CallSocket());
        for (const char* version : kDraVersions)
          info.add_supported_versions(absl::StrCat(version, ".DRAPlugin"));
        for (const char* version : kHealthVersions)
          info.add_supported_versions(absl::StrCat(version, ".DRAResourceHealth"));
        return info;
      });
  server_.AddUnary<Status, pluginregistration::RegistrationStatusResponse>(
      "/pluginregistration.Registration/NotifyRegistrationStatus", [this](const Status& status) {
        const std::string error = PrintableText(status.error(), 512);
        parts_.conditions->Set(kKubeletCondition,
                               status.plugin_registered()
                                   ? absl::OkStatus()
                                   : absl::UnavailableError("the kubelet refuses the driver: " + error));
        if (status.plugin_registered()) spdlog::info("registered engine=kubernetes driver={}", kDriver);
        return pluginregistration::RegistrationStatusResponse();
      });
}

void DraServer::AddClaims() {
  const auto prepare = [this](const dra::NodePrepareResourcesRequest& request) {
    return AnswerPrepare(request, [this](const ClaimName& name) {
      return Measured(*parts_.counters, "prepare", name, [&] { return parts_.driver->Prepare(name); });
    });
  };
  const auto unprepare = [this](const dra::NodeUnprepareResourcesRequest& request) {
    return AnswerUnprepare(request, [this](const ClaimName& name) {
      return Measured(*parts_.counters, "unprepare", name, [&] { return parts_.driver->Unprepare(name); });
    });
  };
  for (const char* version : kDraVersions) {
    const std::string service = absl::StrCat("/k8s.io.kubelet.pkg.apis.dra.", version, ".DRAPlugin/");
    server_.AddUnary<dra::NodePrepareResourcesRequest, dra::NodePrepareResourcesResponse>(
        service + "NodePrepareResources", prepare);
    server_.AddUnary<dra::NodeUnprepareResourcesRequest, dra::NodeUnprepareResourcesResponse>(
        service + "NodeUnprepareResources", unprepare);
  }
}

void DraServer::WatchHealth(ServerCall& call) const {
  Inventory seen = parts_.inventory->Current();
  while (!call.IsCancelled() && call.Write(BytesOf(HealthOf(seen, parts_.node)))) {
    const auto end = std::chrono::steady_clock::now() + kHealthPeriod;
    while (!call.IsCancelled() && std::chrono::steady_clock::now() < end) {
      Inventory now = parts_.inventory->WaitForChange(seen, kHealthPause);
      if (now == seen) continue;
      seen = std::move(now);
      break;
    }
  }
}

void DraServer::AddHealth() {
  for (const char* version : kHealthVersions) {
    server_.AddStream(absl::StrCat("/", version, ".DRAResourceHealth/NodeWatchResources"),
                      [this](ServerCall& call) { WatchHealth(call); });
  }
}

absl::Status DraServer::Serve() {
  AddRegistration();
  AddClaims();
  AddHealth();
  // The registration last: the kubelet calls as soon as it is there.
  RETURN_IF_ERROR(server_.Serve({CallSocket(), RegistrationSocket()}));
  spdlog::info("serving engine=kubernetes socket={} registration={}", CallSocket(), RegistrationSocket());
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<DraServer>> DraServer::Start(Parts parts) {
  parts.conditions->Set(kKubeletCondition,
                        absl::UnavailableError("the kubelet has not registered the driver yet"));
  std::unique_ptr<DraServer> server(new DraServer(std::move(parts)));
  RETURN_IF_ERROR(server->Serve());
  return server;
}

DraServer::~DraServer() { server_.Stop(kLastCalls); }

}  // namespace xpud::agent::kubernetes
