// The ResourceSlice of resource.k8s.io/v1 by which the scheduler knows this node's devices: pure functions of
// the inventory. Thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "deploy/agent/core/inventory.h"
#include "deploy/agent/kubernetes/json.h"

namespace xpud::agent::kubernetes {

// "NODE-xpud.dev", a DNS subdomain. REQUIRES: IsObjectName(node).
std::string SliceName(std::string_view node);

// When each taint was added, by "DEVICE KEY VALUE". A taint keeps its time while it lasts.
using TaintTimes = std::map<std::string, std::string>;
TaintTimes TaintTimesOf(const Json& devices);

// spec.devices. A device has the capacities `memory` in steps of 1 MiB, `share` in steps of 1, and `claims`,
// of which a request has 1. A claim that asks for no memory or share has all of it. A device without memory
// or share left, and all if no claim may be made, are left out: a request would get 0 of them. Unhealthy
// devices, and all while the daemon is drained, have a taint, with its time from `times` or `now` (RFC 3339).
Json SliceDevices(const Inventory& inventory, const TaintTimes& times, std::string_view now);

// The whole object, without what the server adds.
Json SliceOf(Json devices, std::string_view node, int64_t generation);

}  // namespace xpud::agent::kubernetes
