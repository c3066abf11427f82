#include "deploy/agent/kubernetes/dra.h"

#include <poll.h>

#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "deploy/agent/core/files.h"
#include "deploy/agent/kubernetes/kubelet_sockets.h"
#include "deploy/agent/kubernetes/names.h"
#include "proto/base/start_thread.h"
#include "proto/base/status_macros.h"

namespace xpud::agent::kubernetes {
namespace {

// Between two looks at whether the other agent has ended.
constexpr std::chrono::milliseconds kTurnPeriod{1'000};

}  // namespace

absl::StatusOr<std::unique_ptr<Dra>> Dra::Create(Options options) {
  if (!IsObjectName(options.node)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "node \"", options.node, "\" can be no node's name: small letters, digits, '-' and '.'"));
  }
  if (options.api_server.url.empty()) {
    ASSIGN_OR_RETURN(options.api_server.url, ApiServer::UrlInCluster());
  }
  ASSIGN_OR_RETURN(Interrupt end, Interrupt::Create());
  std::unique_ptr<Dra> dra(new Dra(std::move(options), std::move(end)));
  const Options& own = dra->options_;
  MakeFolders(own.state).IgnoreError();  // where that fails, the first tombstone says why
  dra->tombstones_ = Tombstones::Open(absl::StrCat(own.state, "/tombstones"));
  own.conditions->Set(kCdiCondition, dra->files_.Open());
  ASSIGN_OR_RETURN(dra->api_server_,
                   ApiServer::Create(own.api_server, own.keeper->counters(), *own.conditions));
  ASSIGN_OR_RETURN(dra->publisher_, SlicePublisher::Start(*dra->api_server_, own.node, own.keeper->counters(),
                                                          *own.conditions));
  dra->driver_ = std::make_unique<DraDriver>(
      DraDriver::Parts{.api_server = dra->api_server_.get(),
                       .keeper = own.keeper,
                       .files = &dra->files_,
                       .tombstones = dra->tombstones_.get(),
                       .conditions = own.conditions,
                       .containers = &dra->pod_resources_,
                       .node = own.node,
                       .was_refused = [inventory = own.inventory] { inventory->Refresh(); },
                       .was_prepared = [raw = dra.get()] { raw->containers_->Ask(); }});
  ASSIGN_OR_RETURN(dra->containers_, ContainerWatch::Start([driver = dra->driver_.get()] {
                     return driver->LabelContainers();
                   }));
  return dra;
}

absl::Status Dra::StartServer() {
  RETURN_IF_ERROR(CheckNoAgentAt(DevicePluginSocket(options_.kubelet)));
  ASSIGN_OR_RETURN(server_, DraServer::Start({.driver = driver_.get(),
                                              .inventory = options_.inventory,
                                              .counters = &options_.keeper->counters(),
                                              .conditions = options_.conditions,
                                              .node = options_.node,
                                              .kubelet = options_.kubelet}));
  {
    const MutexLock lock(mutex_);
    serves_ = true;
  }
  Publish();
  return absl::OkStatus();
}

void Dra::Publish() {
  const MutexLock lock(mutex_);
  // Read here, so that no older inventory is published after a newer one.
  const Inventory inventory = options_.inventory->Current();
  if (serves_ && !inventory.devices.empty()) publisher_->Publish(inventory);
}

void Dra::WaitForTurn() {
  absl::Status status;
  pollfd end = {.fd = end_.fd(), .events = POLLIN, .revents = 0};
  do {
    poll(&end, 1, static_cast<int>(kTurnPeriod.count()));
    if (end.revents != 0) return;
    status = StartServer();
    if (!status.ok()) options_.conditions->Set(kKubeletCondition, status);
  } while (!status.ok());
}

absl::Status Dra::Serve() {
  absl::Status status = StartServer();
  if (!absl::IsFailedPrecondition(status)) return status;
  options_.conditions->Set(kKubeletCondition, status);
  ASSIGN_OR_RETURN(waits_, StartThread("xpud-turn", [this] { WaitForTurn(); }));
  return absl::OkStatus();
}

void Dra::EndServing() {
  end_.Raise();
  if (waits_.joinable()) waits_.join();
  server_.reset();
}

}  // namespace xpud::agent::kubernetes
