// The parts by which Kubernetes gives out devices with dynamic resource allocation, in the order that they
// need one another. Owned by main.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "deploy/agent/core/claim_keeper.h"
#include "deploy/agent/core/conditions.h"
#include "deploy/agent/core/engine.h"
#include "deploy/agent/core/inventory_watch.h"
#include "deploy/agent/kubernetes/api_server.h"
#include "deploy/agent/kubernetes/cdi_files.h"
#include "deploy/agent/kubernetes/dra_driver.h"
#include "deploy/agent/kubernetes/dra_server.h"
#include "deploy/agent/kubernetes/slice_publisher.h"
#include "deploy/agent/kubernetes/tombstones.h"

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
  // What the scheduler is to know of the devices.
  void Publish(const Inventory& inventory) { publisher_->Publish(inventory); }
  // Has the kubelet find the driver. REQUIRES: called once.
  absl::Status Serve();
  Engine& engine() { return *driver_; }

 private:
  explicit Dra(Options options) : options_(std::move(options)), files_(options_.cdi) {}

  const Options options_;
  const CdiFiles files_;
  std::unique_ptr<ApiServer> api_server_;
  std::unique_ptr<Tombstones> tombstones_;
  std::unique_ptr<SlicePublisher> publisher_;
  std::unique_ptr<DraDriver> driver_;
  std::unique_ptr<DraServer> server_;
};

}  // namespace xpud::agent::kubernetes
