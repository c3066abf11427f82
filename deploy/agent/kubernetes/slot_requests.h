// What the kubelet asks of a device plugin, in slots. Pure functions.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "deploy/agent/kubelet/device_plugin.pb.h"
#include "deploy/agent/kubernetes/slots.h"

namespace xpud::agent::kubernetes {

// The slots of each container. Returns InvalidArgument if an id is no slot's; the slots need not exist.
absl::StatusOr<std::vector<SlotSet>> SlotsOf(const v1beta1::AllocateRequest& request);
// The ids of all containers, for a line of the log.
std::string IdsText(const v1beta1::AllocateRequest& request);

// PreferredSlots for each container. Returns InvalidArgument for ids that are no slots', or a negative size.
absl::StatusOr<v1beta1::PreferredAllocationResponse> Prefer(
    const v1beta1::PreferredAllocationRequest& request);

}  // namespace xpud::agent::kubernetes
