#include "deploy/agent/kubernetes/resource_slice.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "deploy/agent/kubernetes/names.h"
#include "deploy/agent/kubernetes/quantity.h"
#include "proto/base/text.h"

namespace xpud::agent::kubernetes {
namespace {

constexpr size_t kMaxName = 253;
constexpr size_t kMaxAttribute = 64;
constexpr size_t kMaxTaintValue = 63;
// Kubernetes allows 64 devices with taints in a slice.
constexpr size_t kMaxDevices = 64;
constexpr uint64_t kMemoryStep = uint64_t{1} << 20;
constexpr char kUnhealthyTaint[] = "xpud.dev/unhealthy";
constexpr char kDrainedTaint[] = "xpud.dev/drained";
// Kubernetes' standard attributes, by which devices of several drivers are matched.
constexpr char kPciAttribute[] = "resource.kubernetes.io/pciBusID";
constexpr char kPcieRootAttribute[] = "resource.kubernetes.io/pcieRoot";

// FNV-1a, for names that must be cut.
uint64_t HashOf(std::string_view text) {
  uint64_t hash = 14695981039346656037U;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211U;
  return hash;
}

void AddText(Json& attributes, const char* name, std::string_view text) {
  if (!text.empty()) attributes[name] = {{"string", PrintableText(text, kMaxAttribute)}};
}

Json AttributesOf(const DeviceState& device) {
  Json attributes = Json::object();
  AddText(attributes, "vendor", device.vendor);
  AddText(attributes, "model", device.model);
  AddText(attributes, "kind", device.kind);
  AddText(attributes, "driver", device.driver);
  AddText(attributes, "pciAddress", device.pci_address);
  AddText(attributes, kPciAttribute, device.pci_address);
  AddText(attributes, kPcieRootAttribute, device.pcie_root);
  attributes["computeUnits"] = {{"int", device.compute_units}};
  return attributes;
}

// `value`, of which a request has 1 to all steps, without a request all. The API server refuses a step that
// does not fit between the least and the value.
Json CapacityOf(uint64_t value, uint64_t step, std::string (*text)(uint64_t)) {
  Json range = {{"min", text(step)}, {"max", text(value)}};
  if (value >= 2 * step) range["step"] = text(step);
  return {{"value", text(value)},
          {"requestPolicy", {{"default", text(value)}, {"validRange", std::move(range)}}}};
}

Json CapacitiesOf(const DeviceState& device, uint32_t claims) {
  return {
      {kMemory, CapacityOf(device.memory_bytes / kMemoryStep * kMemoryStep, kMemoryStep, BinaryQuantity)},
      {kShare, CapacityOf(device.share, 1, DecimalQuantity)},
      {kClaims,
       {{"value", DecimalQuantity(claims)}, {"requestPolicy", {{"default", "1"}, {"validValues", {"1"}}}}}}};
}

// A reason as the value of a label: "device lost: -4" becomes "device-lost-4".
std::string ReasonCode(std::string_view reason) {
  std::string code;
  for (const char c : reason) {
    if (absl::ascii_isalnum(static_cast<unsigned char>(c)))
      code += c;
    else if (!code.empty() && code.back() != '-')
      code += '-';
    if (code.size() == kMaxTaintValue) break;
  }
  while (code.ends_with('-')) code.pop_back();
  return code.empty() ? "unknown" : code;
}

std::string TimeKey(std::string_view device, std::string_view key, std::string_view value) {
  return absl::StrCat(View(device), " ", View(key), " ", View(value));
}

Json TaintOf(const std::string& device, const char* key, const std::string& value, const TaintTimes& times,
             std::string_view now) {
  const auto known = times.find(TimeKey(device, key, value));
  return {{"key", key},
          {"value", value},
          {"effect", "NoSchedule"},
          {"timeAdded", known == times.end() ? std::string(now) : known->second}};
}

Json TaintsOf(const std::string& name, const DeviceState& device, bool drained, const TaintTimes& times,
              std::string_view now) {
  Json taints = Json::array();
  if (!device.unhealthy.empty())
    taints.push_back(TaintOf(name, kUnhealthyTaint, ReasonCode(device.unhealthy), times, now));
  if (drained) taints.push_back(TaintOf(name, kDrainedTaint, "operator", times, now));
  return taints;
}

}  // namespace

std::string SliceName(std::string_view node) {
  const std::string suffix = absl::StrCat("-", kDriver);
  if (node.size() + suffix.size() <= kMaxName) return absl::StrCat(View(node), suffix);
  // A part ends with a letter or a digit, wherever the node's name is cut.
  return absl::StrCat(View(node.substr(0, kMaxName - suffix.size() - 18)), "x",
                      absl::StrFormat("%016x", HashOf(node)), "x", suffix);
}

TaintTimes TaintTimesOf(const Json& devices) {
  TaintTimes times;
  if (!devices.is_array()) return times;
  for (const Json& device : devices) {
    const Json& taints = Member(device, "taints");
    if (!taints.is_array()) continue;
    for (const Json& taint : taints) {
      const std::string_view time = TextMember(taint, "timeAdded");
      if (!time.empty())
        times[TimeKey(TextMember(device, "name"), TextMember(taint, "key"), TextMember(taint, "value"))] =
            time;
    }
  }
  return times;
}

Json SliceDevices(const Inventory& inventory, const TaintTimes& times, std::string_view now) {
  Json devices = Json::array();
  for (const DeviceState& device : inventory.devices) {
    if (device.share == 0 || device.memory_bytes < kMemoryStep || inventory.claims == 0) continue;
    if (devices.size() == kMaxDevices) break;
    const std::string name = absl::StrCat(kDevicePrefix, device.index);
    Json one = {{"name", name},
                {"allowMultipleAllocations", true},
                {"attributes", AttributesOf(device)},
                {"capacity", CapacitiesOf(device, inventory.claims)}};
    Json taints = TaintsOf(name, device, inventory.drained, times, now);
    if (!taints.empty()) one["taints"] = std::move(taints);
    devices.push_back(std::move(one));
  }
  return devices;
}

Json SliceOf(Json devices, std::string_view node, int64_t generation) {
  Json spec = {{"driver", kDriver},
               {"nodeName", node},
               {"pool", {{"name", node}, {"generation", generation}, {"resourceSliceCount", 1}}}};
  if (!devices.empty()) spec["devices"] = std::move(devices);
  return {{"apiVersion", kApiVersion},
          {"kind", "ResourceSlice"},
          {"metadata", {{"name", SliceName(node)}}},
          {"spec", std::move(spec)}};
}

}  // namespace xpud::agent::kubernetes
