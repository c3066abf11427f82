#include "deploy/agent/kubernetes/device_plugin_server.h"

#include <spdlog/spdlog.h>

#include <chrono>
#include <utility>
#include <vector>

#include "deploy/agent/kubelet/device_plugin.pb.h"
#include "deploy/agent/kubernetes/names.h"
#include "deploy/agent/kubernetes/slot_requests.h"
#include "proto/base/status_macros.h"

namespace xpud::agent::kubernetes {
namespace {

namespace plugin = ::v1beta1;

constexpr std::chrono::milliseconds kWatchPause{500};  // between two looks at whether the call goes on
constexpr char kService[] = "/v1beta1.DevicePlugin/";
constexpr char kMountedFolder[] = "/run/xpud";

plugin::ListAndWatchResponse ListOf(const Inventory& inventory, uint32_t slots) {
  plugin::ListAndWatchResponse list;
  for (const DeviceState& device : inventory.devices) {
    for (uint32_t index = 0; index < slots; ++index) {
      const Slot slot{device.index, index};
      plugin::Device& out = *list.add_devices();
      out.set_id(SlotId(slot));
      out.set_health(IsOffered(slot, inventory, slots) ? "Healthy" : "Unhealthy");
      if (device.numa_node) out.mutable_topology()->add_nodes()->set_id(*device.numa_node);
    }
  }
  return list;
}

absl::StatusOr<plugin::AllocateResponse> Allocate(DevicePlugin& owner,
                                                  const plugin::AllocateRequest& request) {
  ASSIGN_OR_RETURN(const std::vector<SlotSet> containers, SlotsOf(request));
  ASSIGN_OR_RETURN(const std::vector<std::string> doors, owner.Allocate(containers));
  plugin::AllocateResponse response;
  for (const std::string& door : doors) {
    // A mount, which every container runtime knows, and not a CDI device. It has no options nosuid, nodev and
    // noexec, which the API lacks; the folder has only sockets.
    plugin::Mount& mount = *response.add_container_responses()->add_mounts();
    mount.set_container_path(kMountedFolder);
    mount.set_host_path(door);
    mount.set_read_only(true);
  }
  return response;
}

}  // namespace

DevicePluginServer::DevicePluginServer(Parts parts) : parts_(std::move(parts)) {}

bool DevicePluginServer::IsReachable() const {
  const std::optional<FileIdentity> now = IdentityOf(parts_.socket);
  return now && identity_ && now->IsSameFile(*identity_);
}

void DevicePluginServer::ListAndWatch(remote::ServerCall& call) {
  ++watches_;
  Inventory seen = parts_.inventory->Current();
  while (!call.IsCancelled() && call.Write(BytesOf(ListOf(seen, parts_.slots)))) {
    Inventory now = seen;
    while (!call.IsCancelled() && now == seen) now = parts_.inventory->WaitForChange(seen, kWatchPause);
    seen = std::move(now);
  }
  --watches_;
}

void DevicePluginServer::AddMethods() {
  const std::string service = kService;
  server_.AddUnary<plugin::Empty, plugin::DevicePluginOptions>(
      service + "GetDevicePluginOptions", [](const plugin::Empty&) {
        plugin::DevicePluginOptions options;
        options.set_get_preferred_allocation_available(true);
        return options;
      });
  server_.AddStream(service + "ListAndWatch", [this](remote::ServerCall& call) { ListAndWatch(call); });
  server_.AddUnary<plugin::PreferredAllocationRequest, plugin::PreferredAllocationResponse>(
      service + "GetPreferredAllocation", Prefer);
  server_.AddUnary<plugin::AllocateRequest, plugin::AllocateResponse>(
      service + "Allocate", [this](const plugin::AllocateRequest& request) {
        const auto began = std::chrono::steady_clock::now();
        auto response = Allocate(*parts_.plugin, request);
        const auto took = std::chrono::steady_clock::now() - began;
        const absl::Status& status = response.status();
        const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(took).count();
        parts_.counters->AddCall(kDevicePluginEngine, "allocate", status, took);
        if (status.ok())
          spdlog::info("allocate engine=device-plugin slots={} ms={}", IdsText(request), ms);
        else
          spdlog::warn("allocate_failed engine=device-plugin slots={} ms={} reason=\"{}\"", IdsText(request),
                       ms, std::string(status.message()));
        return response;
      });
  server_.AddUnary<plugin::PreStartContainerRequest, plugin::PreStartContainerResponse>(
      service + "PreStartContainer",
      [](const plugin::PreStartContainerRequest&) { return plugin::PreStartContainerResponse(); });
}

absl::Status DevicePluginServer::Serve() {
  AddMethods();
  RETURN_IF_ERROR(server_.Serve({parts_.socket}));
  identity_ = IdentityOf(parts_.socket);
  spdlog::info("serving engine=device-plugin socket={}", parts_.socket);
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<DevicePluginServer>> DevicePluginServer::Start(Parts parts) {
  std::unique_ptr<DevicePluginServer> server(new DevicePluginServer(std::move(parts)));
  RETURN_IF_ERROR(server->Serve());
  return server;
}

}  // namespace xpud::agent::kubernetes
