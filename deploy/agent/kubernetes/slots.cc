#include "deploy/agent/kubernetes/slots.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <tuple>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "deploy/agent/core/claim_keeper.h"
#include "deploy/agent/core/claim_part.h"
#include "deploy/agent/kubernetes/names.h"
#include "proto/base/status_macros.h"

namespace xpud::agent::kubernetes {
namespace {

constexpr char kSlotInfix[] = "-slot-";
constexpr char kSlotsLabel[] = "slots";
constexpr uint64_t kMemoryStep = 1 << 20;

// A number as absl::StrCat writes it.
std::optional<uint32_t> ReadNumber(absl::string_view text) {
  uint32_t number = 0;
  if (!absl::SimpleAtoi(text, &number) || absl::StrCat(number) != text) return std::nullopt;
  return number;
}

using ByDevice = std::map<uint32_t, std::set<uint32_t>>;

ByDevice Sorted(const SlotSet& slots) {
  ByDevice devices;
  for (const Slot& slot : slots) devices[slot.device].insert(slot.index);
  return devices;
}

// "0-3,7"
std::string RangesText(const std::set<uint32_t>& indices) {
  std::vector<std::string> ranges;
  for (auto at = indices.begin(); at != indices.end();) {
    const uint32_t first = *at;
    uint32_t last = first;
    for (++at; at != indices.end() && *at == last + 1; ++at) last = *at;
    ranges.push_back(first == last ? absl::StrCat(first) : absl::StrCat(first, "-", last));
  }
  return absl::StrJoin(ranges, ",");
}

// Adds the slots of "0-3,7". Returns false if it is no such text.
bool AddRanges(uint32_t device, absl::string_view text, SlotSet& out) {
  for (const absl::string_view range : absl::StrSplit(text, ',')) {
    const std::vector<absl::string_view> ends = absl::StrSplit(range, '-');
    const std::optional<uint32_t> first = ReadNumber(ends.front()), last = ReadNumber(ends.back());
    if (ends.size() > 2 || !first || !last || *last >= kMaxSlots) return false;
    for (uint32_t index = *first; index <= *last; ++index) out.insert({device, index});
  }
  return true;
}

const DeviceState* Find(const Inventory& inventory, uint32_t device) {
  const auto found = std::ranges::find(inventory.devices, device, &DeviceState::index);
  return found == inventory.devices.end() ? nullptr : &*found;
}

absl::Status CheckEqual(const ByDevice& devices) {
  const auto& [first, first_indices] = *devices.begin();
  for (const auto& [device, indices] : devices) {
    if (indices.size() == first_indices.size()) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("the container has ", first_indices.size(), " slots of ", kDevicePrefix, first, " and ",
                     indices.size(), " of ", kDevicePrefix, device,
                     "; it must have equally many of each device, so ask for fewer slots, or for a multiple "
                     "of the devices"));
  }
  return absl::OkStatus();
}

// The devices of a choice: equally many slots of each, `count` devices. Returns nothing if there are not so
// many.
std::vector<uint32_t> Spread(const ByDevice& free, const ByDevice& required, size_t size, size_t count) {
  if (size % count != 0 || required.size() > count) return {};
  const size_t each = size / count;
  std::vector<std::tuple<bool, size_t, uint32_t>> fitting;  // required ones first
  for (const auto& [device, indices] : free) {
    const auto needed = required.find(device);
    const bool is_required = needed != required.end();
    const bool fits = indices.size() >= each && (!is_required || needed->second.size() <= each);
    if (is_required && !fits) return {};
    if (fits) fitting.emplace_back(!is_required, indices.size(), device);
  }
  if (fitting.size() < count) return {};
  std::ranges::sort(fitting);
  std::vector<uint32_t> devices;
  for (size_t i = 0; i < count; ++i) devices.push_back(std::get<uint32_t>(fitting[i]));
  return devices;
}

}  // namespace

std::string SlotId(const Slot& slot) {
  return absl::StrCat(kDevicePrefix, slot.device, kSlotInfix, slot.index);
}

std::optional<Slot> ReadSlotId(std::string_view id) {
  if (!id.starts_with(kDevicePrefix)) return std::nullopt;
  id.remove_prefix(std::string_view(kDevicePrefix).size());
  const size_t infix = id.find(kSlotInfix);
  if (infix == std::string_view::npos) return std::nullopt;
  const auto device = ReadNumber(View(id.substr(0, infix)));
  const auto index = ReadNumber(View(id.substr(infix + std::string_view(kSlotInfix).size())));
  if (!device || !index || *index >= kMaxSlots) return std::nullopt;
  return Slot{*device, *index};
}

std::string SlotsText(const SlotSet& slots) {
  return absl::StrJoin(Sorted(slots), ";", [](std::string* out, const auto& device) {
    absl::StrAppend(out, device.first, ":", RangesText(device.second));
  });
}

std::optional<SlotSet> ReadSlotsText(std::string_view text) {
  SlotSet slots;
  for (const absl::string_view part : absl::StrSplit(View(text), ';')) {
    const std::vector<absl::string_view> sides = absl::StrSplit(part, ':');
    const std::optional<uint32_t> device = ReadNumber(sides.front());
    if (sides.size() != 2 || !device || !AddRanges(*device, sides.back(), slots)) return std::nullopt;
  }
  if (SlotsText(slots) != text) return std::nullopt;
  return slots;
}

bool IsOffered(const Slot& slot, const Inventory& inventory, uint32_t slots) {
  const DeviceState* device = Find(inventory, slot.device);
  return device != nullptr && device->unhealthy.empty() && !inventory.drained &&
         100 * (slot.index + 1) <= device->share * slots;
}

absl::StatusOr<v1::Claim> PartOf(const SlotSet& wanted, const Inventory& inventory, uint32_t slots) {
  const ByDevice devices = Sorted(wanted);
  v1::Claim claim;
  std::optional<uint64_t> memory;  // of the device that has the least
  for (const auto& [index, indices] : devices) {
    const DeviceState* device = Find(inventory, index);
    if (device == nullptr || *indices.rbegin() >= slots) {
      return absl::InvalidArgumentError(absl::StrCat("there is no slot ", SlotId({index, *indices.rbegin()}),
                                                     "; there are ", inventory.devices.size(), " devices of ",
                                                     slots, " slots each"));
    }
    memory = std::min(memory.value_or(device->memory_bytes), device->memory_bytes);
    claim.add_devices(index);
  }
  if (!memory) return absl::InvalidArgumentError("no slot is named; a container needs one");
  RETURN_IF_ERROR(CheckEqual(devices));

  const auto count = static_cast<uint32_t>(devices.begin()->second.size());
  const uint32_t share = 100 * count / slots;
  const uint64_t part = *memory * count / slots / kMemoryStep * kMemoryStep;
  if (part == 0) {
    return absl::ResourceExhaustedError(absl::StrCat(count, " of ", slots,
                                                     " slots have less than 1 MiB of the ", *memory,
                                                     " bytes that can be guaranteed"));
  }
  SetShare(claim, share);
  SetMemory(claim, part);
  return claim;
}

absl::StatusOr<v1::Claim> ClaimOf(const SlotSet& wanted, const Inventory& inventory, uint32_t slots) {
  ASSIGN_OR_RETURN(v1::Claim claim, PartOf(wanted, inventory, slots));
  const std::string text = SlotsText(wanted);
  if (text.size() > kMaxLabel) {
    return absl::InvalidArgumentError(absl::StrCat(wanted.size(),
                                                   " slots are too scattered: a label with them has ",
                                                   text.size(), " bytes; it may have ", kMaxLabel));
  }
  (*claim.mutable_labels())[kEngineLabel] = kDevicePluginEngine;
  (*claim.mutable_labels())[kSlotsLabel] = text;
  return claim;
}

SlotSet SlotsOf(const v1::Claim& claim) {
  return ReadSlotsText(LabelOf(claim, kSlotsLabel)).value_or(SlotSet());
}

SlotSet PreferredSlots(const SlotSet& free, const SlotSet& required, size_t size) {
  SlotSet all = free;
  all.insert(required.begin(), required.end());
  const ByDevice by_device = Sorted(all), required_by_device = Sorted(required);
  SlotSet chosen = required;
  for (size_t count = 1; count <= by_device.size(); ++count) {
    const std::vector<uint32_t> devices = Spread(by_device, required_by_device, size, count);
    for (const uint32_t device : devices) {
      const auto needed = required_by_device.find(device);
      size_t missing = size / count - (needed == required_by_device.end() ? 0 : needed->second.size());
      for (const uint32_t index : by_device.at(device)) {
        if (missing == 0) break;
        if (chosen.insert({device, index}).second) --missing;
      }
    }
    if (!devices.empty()) return chosen;
  }
  for (const Slot& slot : all) {
    if (chosen.size() >= size) break;
    chosen.insert(slot);
  }
  return chosen;
}

}  // namespace xpud::agent::kubernetes
