// What the kubelet calls of a device plugin, at a socket in its folder device-plugins. The socket's file does
// not outlive a restart of the kubelet, so a server is made for each start of it. Owned by
// DevicePluginRegistration.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "deploy/agent/core/counters.h"
#include "deploy/agent/core/inventory_watch.h"
#include "deploy/agent/kubernetes/device_plugin.h"
#include "deploy/agent/kubernetes/kubelet_server.h"
#include "deploy/agent/kubernetes/kubelet_sockets.h"

namespace xpud::agent::kubernetes {

class DevicePluginServer {
 public:
  struct Parts {
    DevicePlugin* plugin;  // none of these is null, and all outlive the server
    const InventoryWatch* inventory;
    Counters* counters;
    std::string socket;
    uint32_t slots;  // of each device
  };

  // Replaces a file at the socket's path. Returns the reason if the socket cannot be made.
  static absl::StatusOr<std::unique_ptr<DevicePluginServer>> Start(Parts parts);
  // Cancels the calls and removes the socket's path, also if another socket is there by now. What was
  // allocated stays.
  ~DevicePluginServer() = default;
  DevicePluginServer(const DevicePluginServer&) = delete;
  DevicePluginServer& operator=(const DevicePluginServer&) = delete;

  // Whether the file at the socket's path is this server's.
  bool IsReachable() const;
  // Whether a kubelet listens to the slots' health.
  bool IsWatched() const { return watches_.load() > 0; }

 private:
  explicit DevicePluginServer(Parts parts);
  absl::Status Serve();
  void AddMethods();
  // Sends all slots and their health, again when these have changed, until the call is cancelled.
  void ListAndWatch(remote::ServerCall& call);

  const Parts parts_;
  std::atomic<int> watches_{0};
  std::optional<FileIdentity> identity_;
  KubeletServer server_;
};

}  // namespace xpud::agent::kubernetes
