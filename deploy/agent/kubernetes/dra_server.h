// What the kubelet calls: the driver's registration, prepare and unprepare, and the devices' health. It
// serves two sockets: one in the kubelet's folder plugins_registry, by which the kubelet finds the driver,
// also after it has restarted, and one for the calls. Owned by main.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "deploy/agent/core/conditions.h"
#include "deploy/agent/core/counters.h"
#include "deploy/agent/core/inventory_watch.h"
#include "deploy/agent/kubernetes/dra_driver.h"
#include "deploy/agent/kubernetes/kubelet_server.h"

namespace xpud::agent::kubernetes {

class DraServer {
 public:
  struct Parts {
    DraDriver* driver;  // none of these is null, and all outlive the server
    const InventoryWatch* inventory;
    Counters* counters;
    Conditions* conditions;
    std::string node;
    std::string kubelet;  // the kubelet's folder, "/var/lib/kubelet"
  };

  // Returns the reason if the sockets cannot be made.
  static absl::StatusOr<std::unique_ptr<DraServer>> Start(Parts parts);
  // Lets calls in progress go on for a few seconds. What was prepared stays.
  ~DraServer();
  DraServer(const DraServer&) = delete;
  DraServer& operator=(const DraServer&) = delete;

 private:
  explicit DraServer(Parts parts);
  std::string CallSocket() const;
  std::string RegistrationSocket() const;
  absl::Status Serve();
  void AddRegistration();
  void AddClaims();
  void AddHealth();
  // Sends the devices' health until the call is cancelled.
  void WatchHealth(remote::ServerCall& call) const;

  const Parts parts_;
  KubeletServer server_;
};

}  // namespace xpud::agent::kubernetes
