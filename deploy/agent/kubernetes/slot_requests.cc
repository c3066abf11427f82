#include "deploy/agent/kubernetes/slot_requests.h"

#include <cstddef>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/base/status_macros.h"
#include "proto/base/text.h"

namespace xpud::agent::kubernetes {
namespace {

// Returns InvalidArgument if one of them is no slot's.
template <typename Ids>
absl::StatusOr<SlotSet> ReadIds(const Ids& ids) {
  SlotSet slots;
  for (const std::string& id : ids) {
    const std::optional<Slot> slot = ReadSlotId(id);
    if (!slot)
      return absl::InvalidArgumentError(absl::StrCat("there is no slot \"", PrintableText(id, 80), "\""));
    slots.insert(*slot);
  }
  return slots;
}

}  // namespace

absl::StatusOr<std::vector<SlotSet>> SlotsOf(const v1beta1::AllocateRequest& request) {
  std::vector<SlotSet> containers;
  for (const auto& container : request.container_requests()) {
    ASSIGN_OR_RETURN(SlotSet slots, ReadIds(container.devices_ids()));
    containers.push_back(std::move(slots));
  }
  return containers;
}

std::string IdsText(const v1beta1::AllocateRequest& request) {
  std::vector<std::string> ids;
  for (const auto& container : request.container_requests())
    ids.insert(ids.end(), container.devices_ids().begin(), container.devices_ids().end());
  return PrintableText(absl::StrJoin(ids, ","), 320);
}

absl::StatusOr<v1beta1::PreferredAllocationResponse> Prefer(
    const v1beta1::PreferredAllocationRequest& request) {
  v1beta1::PreferredAllocationResponse response;
  for (const auto& container : request.container_requests()) {
    ASSIGN_OR_RETURN(const SlotSet free, ReadIds(container.available_deviceids()));
    ASSIGN_OR_RETURN(const SlotSet required, ReadIds(container.must_include_deviceids()));
    if (container.allocation_size() < 0)
      return absl::InvalidArgumentError(
          absl::StrCat("a request for ", container.allocation_size(), " slots"));
    auto& out = *response.add_container_responses();
    for (const Slot& slot : PreferredSlots(free, required, static_cast<size_t>(container.allocation_size())))
      out.add_deviceids(SlotId(slot));
  }
  return response;
}

}  // namespace xpud::agent::kubernetes
