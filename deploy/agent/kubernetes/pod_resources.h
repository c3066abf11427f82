// Asks the kubelet which containers have which slots and claims. Thread-safe.
#pragma once

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "deploy/agent/kubelet/pod_resources.pb.h"
#include "deploy/agent/kubernetes/slots.h"

namespace xpud::agent::kubernetes {

class PodResources {
 public:
  // `kubelet`: the kubelet's folder.
  explicit PodResources(const std::string& kubelet);

  struct Look {
    std::vector<ContainerSlots> containers;
    // Those that have a claim of dynamic resource allocation, by the ResourceClaim's uid: pod and container.
    std::map<std::string, std::set<std::pair<std::string, std::string>>> claims;
    // Whether a container that is not listed has ended. A kubelet that has just started does not know all its
    // pods yet.
    bool is_complete = false;
  };
  // Blocks for at most kKubeletTimeout. Returns an error if the kubelet does not answer.
  absl::StatusOr<Look> List() const;
  // What an answer says of this agent's slots and claims. What it says of others' is left out.
  static Look Read(const ::v1::ListPodResourcesResponse& answer, bool is_complete);

 private:
  const std::string socket_;
};

}  // namespace xpud::agent::kubernetes
