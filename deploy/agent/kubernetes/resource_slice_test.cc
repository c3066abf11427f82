#include "deploy/agent/kubernetes/resource_slice.h"

#include <gtest/gtest.h>

#include "deploy/agent/kubernetes/names.h"

namespace xpud::agent::kubernetes {
namespace {

constexpr char kNow[] = "2026-11-29T10:00:00Z";

DeviceState Device(uint32_t index = 0) {
  return {.index = index,
          .model = "NVIDIA H100",
          .kind = "gpu",
          .vendor = "cuda",
          .driver = "libcuda 580",
          .pci_address = "0000:65:00.0",
          .pcie_root = "pci0000:64",
          .compute_units = 132,
          .memory_bytes = (uint64_t{80} << 30) + 12345,
          .share = 100};
}

Json Devices(const Inventory& inventory, const TaintTimes& times = {}) {
  return SliceDevices(inventory, times, kNow);
}

TEST(ResourceSlice, NamesTheNodeItsPoolAndTheDevices) {
  const Json slice = SliceOf(Devices({.devices = {Device(0), Device(3)}, .claims = 1024}), "node-1", 7);
  EXPECT_EQ(slice["apiVersion"], "resource.k8s.io/v1");
  EXPECT_EQ(slice["kind"], "ResourceSlice");
  EXPECT_EQ(slice["metadata"]["name"], "node-1-xpud.dev");
  const Json& spec = slice["spec"];
  EXPECT_EQ(spec["driver"], "xpud.dev");
  EXPECT_EQ(spec["nodeName"], "node-1");
  EXPECT_EQ(spec["pool"], Json({{"name", "node-1"}, {"generation", 7}, {"resourceSliceCount", 1}}));
  ASSERT_EQ(spec["devices"].size(), 2U);
  EXPECT_EQ(spec["devices"][1]["name"], "xpud-3");
  EXPECT_FALSE(spec["devices"][0].contains("taints"));
}

TEST(ResourceSlice, ADeviceHasAttributesAndCapacities) {
  const Json device = Devices({.devices = {Device()}, .claims = 1000})[0];
  EXPECT_EQ(device["allowMultipleAllocations"], true);
  const Json& attributes = device["attributes"];
  EXPECT_EQ(attributes["vendor"]["string"], "cuda");
  EXPECT_EQ(attributes["model"]["string"], "NVIDIA H100");
  EXPECT_EQ(attributes["kind"]["string"], "gpu");
  EXPECT_EQ(attributes["driver"]["string"], "libcuda 580");
  EXPECT_EQ(attributes["computeUnits"]["int"], 132);
  EXPECT_EQ(attributes["pciAddress"]["string"], "0000:65:00.0");
  EXPECT_EQ(attributes["resource.kubernetes.io/pciBusID"]["string"], "0000:65:00.0");
  EXPECT_EQ(attributes["resource.kubernetes.io/pcieRoot"]["string"], "pci0000:64");
  const Json& capacity = device["capacity"];
  EXPECT_EQ(capacity["memory"], *ParseJson(R"({"value": "80Gi", "requestPolicy": {"default": "80Gi",
                                              "validRange": {"min": "1Mi", "step": "1Mi", "max": "80Gi"}}})"));
  EXPECT_EQ(capacity["share"], *ParseJson(R"({"value": "100", "requestPolicy": {"default": "100",
                                             "validRange": {"min": "1", "step": "1", "max": "100"}}})"));
  EXPECT_EQ(capacity["claims"],
            *ParseJson(R"({"value": "1k", "requestPolicy": {"default": "1", "validValues": ["1"]}})"));
}

TEST(ResourceSlice, AttributesAreCutBetweenCharactersAndUnknownOnesLeftOut) {
  DeviceState device = Device();
  device.model = std::string(63, 'x') + "\xc3\xa9";
  device.pci_address = device.pcie_root = "";
  device.driver = "\xff\n";
  const Json attributes = Devices({.devices = {device}, .claims = 1})[0]["attributes"];
  EXPECT_EQ(attributes["model"]["string"], std::string(63, 'x'));
  EXPECT_EQ(attributes["driver"]["string"], "??");
  EXPECT_FALSE(attributes.contains("pciAddress"));
  EXPECT_FALSE(attributes.contains("resource.kubernetes.io/pciBusID"));
  EXPECT_FALSE(attributes.contains("resource.kubernetes.io/pcieRoot"));
}

TEST(ResourceSlice, ADeviceOfWhichNothingIsLeftIsLeftOut) {
  DeviceState no_share = Device(0), no_memory = Device(1), little = Device(2);
  no_share.share = 0;
  no_memory.memory_bytes = 1000;
  little.share = 1;
  little.memory_bytes = uint64_t{1} << 20;
  const Json devices = Devices({.devices = {no_share, no_memory, little}, .claims = 1});
  ASSERT_EQ(devices.size(), 1U);
  EXPECT_EQ(devices[0]["name"], "xpud-2");
  // A step would lead beyond the value, which the API server refuses.
  EXPECT_EQ(devices[0]["capacity"]["share"]["requestPolicy"]["validRange"],
            Json({{"min", "1"}, {"max", "1"}}));
  EXPECT_EQ(devices[0]["capacity"]["memory"]["requestPolicy"]["validRange"],
            Json({{"min", "1Mi"}, {"max", "1Mi"}}));
  EXPECT_TRUE(Devices({.devices = {Device()}, .claims = 0}).empty());
  EXPECT_FALSE(SliceOf(Json::array(), "node-1", 1)["spec"].contains("devices"));
}

TEST(ResourceSlice, TaintsKeepTheirTimeWhileTheyLast) {
  DeviceState sick = Device(0);
  sick.unhealthy = "device lost: ZE_RESULT_ERROR (-4)!";
  const Json first = Devices({.devices = {sick, Device(1)}, .claims = 1});
  EXPECT_EQ(first[0]["taints"],
            *ParseJson(R"([{"key": "xpud.dev/unhealthy", "value": "device-lost-ZE-RESULT-ERROR-4",
                                              "effect": "NoSchedule", "timeAdded": "2026-11-29T10:00:00Z"}])"));
  EXPECT_FALSE(first[1].contains("taints"));

  const Json later = SliceDevices({.devices = {sick, Device(1)}, .claims = 1, .drained = true},
                                  TaintTimesOf(first), "2026-11-29T11:00:00Z");
  EXPECT_EQ(later[0]["taints"][0], first[0]["taints"][0]);
  EXPECT_EQ(later[0]["taints"][1]["key"], "xpud.dev/drained");
  EXPECT_EQ(later[0]["taints"][1]["timeAdded"], "2026-11-29T11:00:00Z");
  EXPECT_EQ(later[1]["taints"].size(), 1U);

  sick.unhealthy = "--\n";
  EXPECT_EQ(Devices({.devices = {sick}, .claims = 1})[0]["taints"][0]["value"], "unknown");
  sick.unhealthy = std::string(100, 'x');
  EXPECT_EQ(Devices({.devices = {sick}, .claims = 1})[0]["taints"][0]["value"], std::string(63, 'x'));
  EXPECT_TRUE(TaintTimesOf(Json("text")).empty());
}

TEST(ResourceSlice, TheNameOfALongNodeIsCutAndStaysUnique) {
  const std::string base =
      std::string(60, 'a') + "." + std::string(60, 'b') + "." + std::string(60, 'c') + ".";
  const std::string one = base + std::string(60, 'd'), other = base + std::string(59, 'd') + "e";
  EXPECT_TRUE(IsObjectName(SliceName(one))) << SliceName(one);
  EXPECT_NE(SliceName(one), SliceName(other));
  EXPECT_EQ(SliceName(std::string(244, 'a')).size(), 253U);
  EXPECT_EQ(SliceName(std::string(245, 'a')).size(), 253U);
}

}  // namespace
}  // namespace xpud::agent::kubernetes
