#include "deploy/agent/kubernetes/dra.h"

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "deploy/agent/kubernetes/names.h"
#include "proto/base/status_macros.h"

namespace xpud::agent::kubernetes {

absl::StatusOr<std::unique_ptr<Dra>> Dra::Create(Options options) {
  if (!IsObjectName(options.node)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "node \"", options.node, "\" can be no node's name: small letters, digits, '-' and '.'"));
  }
  if (options.api_server.url.empty()) {
    ASSIGN_OR_RETURN(options.api_server.url, ApiServer::UrlInCluster());
  }
  std::unique_ptr<Dra> dra(new Dra(std::move(options)));
  const Options& own = dra->options_;
  std::error_code error;
  std::filesystem::create_directories(own.state, error);  // where that fails, the first tombstone says why
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
                       .node = own.node,
                       .was_refused = [inventory = own.inventory] { inventory->Refresh(); }});
  return dra;
}

absl::Status Dra::Serve() {
  ASSIGN_OR_RETURN(server_, DraServer::Start({.driver = driver_.get(),
                                              .inventory = options_.inventory,
                                              .counters = &options_.keeper->counters(),
                                              .conditions = options_.conditions,
                                              .node = options_.node,
                                              .kubelet = options_.kubelet}));
  return absl::OkStatus();
}

}  // namespace xpud::agent::kubernetes
