// Slots: the equal parts of devices that the device plugin gives out, because a device plugin can only count.
// Values and pure functions; thread-safe.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "deploy/agent/core/inventory.h"
#include "proto/control/xpud.pb.h"

namespace xpud::agent::kubernetes {

// The most slots of a device.
inline constexpr uint32_t kMaxSlots = 100;

struct Slot {
  uint32_t device = 0;  // the daemon's number of it
  uint32_t index = 0;   // below the number of the device's slots
  auto operator<=>(const Slot&) const = default;
};
using SlotSet = std::set<Slot>;

// A container and its slots, as the kubelet lists them.
struct ContainerSlots {
  std::string name_space, pod, container;
  SlotSet slots;  // not empty
};

// How the kubelet names a slot: "xpud-0-slot-3".
std::string SlotId(const Slot& slot);
// Returns nullopt if SlotId cannot have written it.
std::optional<Slot> ReadSlotId(std::string_view id);

// The value of a claim's label: "0:0-3,7;1:0-4".
std::string SlotsText(const SlotSet& slots);
// Returns nullopt if SlotsText cannot have written it.
std::optional<SlotSet> ReadSlotsText(std::string_view text);

// Whether work can run on the slot, of `slots` of its device. While others are guaranteed a part of the
// device, its last slots are not offered.
bool IsOffered(const Slot& slot, const Inventory& inventory, uint32_t slots);

// What a container gets for `wanted`, which may not be empty, where each device is `slots` slots: devices,
// weight, guaranteed time and memory of a claim. A claim has equal parts of all its devices, so the container
// must have equally many slots of each. Returns InvalidArgument if it has not, or if a slot does not exist,
// and ResourceExhausted if the slots have no memory.
absl::StatusOr<v1::Claim> PartOf(const SlotSet& wanted, const Inventory& inventory, uint32_t slots);

// PartOf, with the labels of the device plugin, which have the slots, and without a key. Returns
// InvalidArgument if a label cannot have them, too.
absl::StatusOr<v1::Claim> ClaimOf(const SlotSet& wanted, const Inventory& inventory, uint32_t slots);
// The slots of such a claim. Nothing if the label is not as ClaimOf writes it.
SlotSet SlotsOf(const v1::Claim& claim);

// Chooses `size` of the slots `free`, among them all of `required`: on one device if it can be, else equally
// many on as few as possible. Among the devices, those with the fewest free slots are taken, so that the
// largest requests still find room. Returns fewer slots if there are not enough, and any if they cannot be
// spread equally.
SlotSet PreferredSlots(const SlotSet& free, const SlotSet& required, size_t size);

}  // namespace xpud::agent::kubernetes
