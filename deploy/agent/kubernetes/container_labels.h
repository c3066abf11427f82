// The labels by which a claim says which containers have it. Pure functions.
#pragma once

#include <set>
#include <string>
#include <utility>

#include "deploy/agent/kubernetes/slots.h"
#include "proto/control/xpud.pb.h"

namespace xpud::agent::kubernetes {

// Sets the labels of a claim of slots: namespace, pod, container.
void SetContainer(v1::Claim& claim, const ContainerSlots& container);

// The label of containers, each with its pod, that have a claim of dynamic resource allocation. Of one pod,
// the names of its containers: "main,worker". Of several pods, with them: "pod-1/main,pod-2/main".
std::string ContainersText(const std::set<std::pair<std::string, std::string>>& containers);

}  // namespace xpud::agent::kubernetes
