// The parts by which Kubernetes gives out devices with dynamic resource allocation, in the order that they
// need one another. Owned by main.
#pragma once

#include <memory>
#include <string>
#include <thread>

#include "absl/status/statusor.h"
#include "deploy/agent/core/claim_keeper.h"
#include "deploy/agent/core/conditions.h"
#include "deploy/agent/core/engine.h"
#include "deploy/agent/core/inventory_watch.h"
#include "deploy/agent/kubernetes/api_server.h"
#include "deploy/agent/kubernetes/cdi_files.h"
#include "deploy/agent/kubernetes/container_watch.h"
#include "deploy/agent/kubernetes/dra_driver.h"
#include "deploy/agent/kubernetes/dra_server.h"
#include "deploy/agent/kubernetes/interrupt.h"
#include "deploy/agent/kubernetes/pod_resources.h"
#include "deploy/agent/kubernetes/slice_publisher.h"
#include "deploy/agent/kubernetes/tombstones.h"
#include "proto/base/mutex.h"

namespace xpud::agent::kubernetes {

class Dra {
 public:
  struct Options {
    ClaimKeeper* keeper;  // none of these is null, and all outlive this
    Conditions* conditions;
    InventoryWatch* inventory;
    std::string node;
    std::string kubelet;  // the kubelet's folder
    std::string cdi;      // the folder for CDI files
    std::string state;    // the folder for tombstones, which is made if it is not there
    ApiServer::Options api_server;
  };

  static absl::StatusOr<std::unique_ptr<Dra>> Create(Options options);
  // Has the scheduler know the devices as the inventory has them, unless they are not served yet.
  // Thread-safe.
  void Publish();
  // Has the kubelet find the driver. While an agent of the mode device-plugin serves this kubelet, sets the
  // condition "kubelet" and waits on a thread of its own. REQUIRES: called once.
  absl::Status Serve();
  // Ends the server, after which the inventory is not used. What was prepared stays.
  void EndServing();
  ~Dra() { EndServing(); }
  Dra(const Dra&) = delete;
  Dra& operator=(const Dra&) = delete;
  Engine& engine() { return *driver_; }

 private:
  Dra(Options options, Interrupt end)
      : options_(std::move(options)),
        files_(options_.cdi),
        pod_resources_(options_.kubelet),
        end_(std::move(end)) {}
  // Returns FailedPrecondition while an agent of the other mode is there.
  absl::Status StartServer();
  // Starts the server as soon as no agent of the other mode is there.
  void WaitForTurn();

  const Options options_;
  const CdiFiles files_;
  const PodResources pod_resources_;
  std::unique_ptr<ApiServer> api_server_;
  std::unique_ptr<Tombstones> tombstones_;
  std::unique_ptr<SlicePublisher> publisher_;
  std::unique_ptr<DraDriver> driver_;
  std::unique_ptr<ContainerWatch> containers_;
  const Interrupt end_;
  Mutex mutex_;
  bool serves_ ABSL_GUARDED_BY(mutex_) = false;
  std::unique_ptr<DraServer> server_;  // started by Serve or by the thread
  std::thread waits_;
};

}  // namespace xpud::agent::kubernetes
