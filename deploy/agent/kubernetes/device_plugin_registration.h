// Has the kubelet know the device plugin: serves its socket, registers it, and does both again when the
// kubelet has started anew, which removes the sockets in its folder. Owned by main. Thread-safe.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "absl/status/statusor.h"
#include "deploy/agent/core/conditions.h"
#include "deploy/agent/kubernetes/device_plugin_server.h"
#include "deploy/agent/kubernetes/interrupt.h"
#include "proto/base/mutex.h"
#include "proto/base/unique_fd.h"

namespace xpud::agent::kubernetes {

class DevicePluginRegistration {
 public:
  struct Parts {
    DevicePlugin* plugin;  // none of these is null, and all outlive the registration
    const InventoryWatch* inventory;
    Counters* counters;
    Conditions* conditions;  // "kubelet" is set: why the kubelet does not know the plugin
    std::string kubelet;     // the kubelet's folder
    uint32_t slots;          // of each device
  };

  // Starts the thread that does it. Returns ResourceExhausted if there is no thread or descriptor left.
  static absl::StatusOr<std::unique_ptr<DevicePluginRegistration>> Start(Parts parts);
  ~DevicePluginRegistration();
  DevicePluginRegistration(const DevicePluginRegistration&) = delete;
  DevicePluginRegistration& operator=(const DevicePluginRegistration&) = delete;

 private:
  using Clock = std::chrono::steady_clock;

  DevicePluginRegistration(Parts parts, Interrupt end, UniqueFd changes);
  void Main();
  // Ensures that the socket is served and that the kubelet knows it.
  absl::Status Step();
  absl::Status EnsureServer();
  absl::Status Register();
  // Waits until the folder has changed, or the time is over. Returns false if the thread is to end.
  bool WaitForChange(std::chrono::milliseconds most) const;

  const Parts parts_;
  const std::string folder_, socket_, kubelet_socket_;
  const Interrupt end_;
  const UniqueFd changes_;  // an inotify

  // The thread only.
  std::unique_ptr<DevicePluginServer> server_;
  std::optional<FileIdentity> registered_;  // the kubelet's socket at which it was registered
  Clock::time_point registered_at_;

  std::thread thread_;
};

}  // namespace xpud::agent::kubernetes
