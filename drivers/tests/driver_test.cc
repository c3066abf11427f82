// The driver through Debian's loader: initialisation, properties, handles, tables.
#include <dlfcn.h>
#include <level_zero/ze_ddi.h>
#include <level_zero/zes_api.h>

#include <algorithm>
#include <string>

#include "drivers/tests/driver_under_test.h"

namespace xpud::drivers {
namespace {

TEST_P(DriverTest, InitialisingTwiceKeepsTheSameHandles) {
  const std::vector<ze_driver_handle_t> drivers = Drivers();
  ASSERT_EQ(zeInit(0), ZE_RESULT_SUCCESS);
  EXPECT_EQ(Drivers(), drivers);
  EXPECT_EQ(std::count(drivers.begin(), drivers.end(), driver_), 1);
}

TEST_P(DriverTest, DescribesTheDevice) {
  ze_device_properties_t properties{};
  properties.stype = ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES;
  ASSERT_EQ(zeDeviceGetProperties(device_, &properties), ZE_RESULT_SUCCESS);
  EXPECT_EQ(properties.type, IsCpu() ? ZE_DEVICE_TYPE_CPU : ZE_DEVICE_TYPE_GPU);
  EXPECT_GT(std::strlen(properties.name), 0u);
  EXPECT_GE(properties.numEUsPerSubslice, 1u);
  EXPECT_EQ(properties.stype, ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES);
  ze_device_memory_properties_t memory{};
  memory.stype = ZE_STRUCTURE_TYPE_DEVICE_MEMORY_PROPERTIES;
  uint32_t count = 1;
  ASSERT_EQ(zeDeviceGetMemoryProperties(device_, &count, &memory), ZE_RESULT_SUCCESS);
  EXPECT_EQ(count, 1u);
  EXPECT_GT(memory.totalSize, uint64_t{64} << 20);
  EXPECT_EQ(memory.totalSize, properties.maxMemAllocSize);
  ze_device_external_memory_properties_t external{};
  external.stype = ZE_STRUCTURE_TYPE_DEVICE_EXTERNAL_MEMORY_PROPERTIES;
  ASSERT_EQ(zeDeviceGetExternalMemoryProperties(device_, &external), ZE_RESULT_SUCCESS);
  EXPECT_TRUE(external.memoryAllocationExportTypes & ZE_EXTERNAL_MEMORY_TYPE_FLAG_OPAQUE_FD);
}

TEST_P(DriverTest, TimerResolutionFollowsTheStructureVersion) {
  ze_device_properties_t properties{};
  properties.stype = ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES;
  ASSERT_EQ(zeDeviceGetProperties(device_, &properties), ZE_RESULT_SUCCESS);
  EXPECT_EQ(properties.timerResolution, 1u);
  properties.stype = ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES_1_2;
  ASSERT_EQ(zeDeviceGetProperties(device_, &properties), ZE_RESULT_SUCCESS);
  EXPECT_EQ(properties.timerResolution, 1'000'000'000u);
}

TEST_P(DriverTest, ListsItsExtensionsAndTheirFunctions) {
  EXPECT_TRUE(Lists("XPUD_extension_command_list"));
  EXPECT_TRUE(Lists(ZE_MEMORY_FREE_POLICIES_EXT_NAME));
  const xpud_back_end_t* back_end = nullptr;
  ASSERT_EQ(Extension<xpud_pfnDriverGetBackEnd_t>("xpudDriverGetBackEnd")(driver_, &back_end),
            ZE_RESULT_SUCCESS);
  EXPECT_STREQ(back_end->name, GetParam());
  void* address = nullptr;
  EXPECT_EQ(zeDriverGetExtensionFunctionAddress(driver_, "zeNoSuchFunction", &address),
            ZE_RESULT_ERROR_INVALID_ARGUMENT);
}

TEST_P(DriverTest, DevicesOnPciSayWhereTheyAre) {
  ze_pci_ext_properties_t pci = {ZE_STRUCTURE_TYPE_PCI_EXT_PROPERTIES, nullptr, {}, {}};
  EXPECT_EQ(Lists(ZE_PCI_PROPERTIES_EXT_NAME), !IsCpu());
  EXPECT_EQ(zeDevicePciGetPropertiesExt(nullptr, &pci), ZE_RESULT_ERROR_INVALID_NULL_HANDLE);
  EXPECT_EQ(zeDevicePciGetPropertiesExt(device_, nullptr), ZE_RESULT_ERROR_INVALID_NULL_POINTER);
  if (IsCpu()) {
    EXPECT_EQ(zeDevicePciGetPropertiesExt(device_, &pci), ZE_RESULT_ERROR_UNSUPPORTED_FEATURE);
    return;
  }
  ASSERT_EQ(zeDevicePciGetPropertiesExt(device_, &pci), ZE_RESULT_SUCCESS);
  EXPECT_EQ(pci.stype, ZE_STRUCTURE_TYPE_PCI_EXT_PROPERTIES);
  EXPECT_NE(pci.address.domain | pci.address.bus | pci.address.device, 0u);
  EXPECT_LE(pci.address.bus, 0xffu);
  EXPECT_LE(pci.address.device, 0x1fu);
  EXPECT_LE(pci.address.function, 7u);
  EXPECT_TRUE(pci.maxSpeed.maxBandwidth == -1 || pci.maxSpeed.maxBandwidth >= 250'000'000);
}

TEST_P(DriverTest, NullHandlesAreRefused) {
  EXPECT_EQ(zeDeviceGetStatus(nullptr), ZE_RESULT_ERROR_INVALID_NULL_HANDLE);
  EXPECT_EQ(zeEventQueryStatus(nullptr), ZE_RESULT_ERROR_INVALID_NULL_HANDLE);
  EXPECT_EQ(zeCommandListDestroy(nullptr), ZE_RESULT_ERROR_INVALID_NULL_HANDLE);
}

TEST_P(DriverTest, StaleHandlesAreRefused) {
  ze_event_pool_handle_t pool = Pool(1);
  ze_event_handle_t event = Event(pool, 0);
  ASSERT_EQ(zeEventDestroy(event), ZE_RESULT_SUCCESS);
  EXPECT_EQ(zeEventQueryStatus(event), ZE_RESULT_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(zeEventDestroy(event), ZE_RESULT_ERROR_INVALID_ARGUMENT);
  ze_command_list_handle_t list = ImmediateList();
  EXPECT_EQ(zeCommandListAppendBarrier(list, event, 0, nullptr),
            ZE_RESULT_ERROR_INVALID_SYNCHRONIZATION_OBJECT);
  EXPECT_EQ(zeCommandListAppendBarrier(list, nullptr, 1, &event),
            ZE_RESULT_ERROR_INVALID_SYNCHRONIZATION_OBJECT);
  EXPECT_EQ(zeCommandListDestroy(list), ZE_RESULT_SUCCESS);
  EXPECT_EQ(zeCommandListAppendBarrier(list, nullptr, 0, nullptr), ZE_RESULT_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(zeEventPoolDestroy(pool), ZE_RESULT_SUCCESS);
}

TEST_P(DriverTest, ForeignAndWronglyTypedHandlesAreRefused) {
  uint64_t not_ours[8] = {};
  EXPECT_EQ(zeDeviceGetStatus(reinterpret_cast<ze_device_handle_t>(not_ours)),
            ZE_RESULT_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(zeDeviceGetStatus(reinterpret_cast<ze_device_handle_t>(uintptr_t{0x1234567})),
            ZE_RESULT_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(zeEventQueryStatus(reinterpret_cast<ze_event_handle_t>(device_)),
            ZE_RESULT_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(zeDeviceGetStatus(reinterpret_cast<ze_device_handle_t>(reinterpret_cast<char*>(device_) + 4)),
            ZE_RESULT_ERROR_INVALID_ARGUMENT);
}

TEST_P(DriverTest, WhatIsNotOfferedSaysSo) {
  ze_sampler_handle_t sampler = nullptr;
  const ze_sampler_desc_t desc{ZE_STRUCTURE_TYPE_SAMPLER_DESC, nullptr, ZE_SAMPLER_ADDRESS_MODE_NONE,
                               ZE_SAMPLER_FILTER_MODE_NEAREST, false};
  EXPECT_EQ(zeSamplerCreate(context_, device_, &desc, &sampler), ZE_RESULT_ERROR_UNSUPPORTED_FEATURE);
  uint32_t count = 0;
  EXPECT_EQ(zesDeviceEnumFans(reinterpret_cast<zes_device_handle_t>(device_), &count, nullptr),
            ZE_RESULT_ERROR_UNSUPPORTED_FEATURE);
}

// The table of an older loader is shorter: memory after its end must not change.
TEST_P(DriverTest, TablesEndWhereTheVersionAskedForEnds) {
  void* const library = dlopen(std::getenv("ZE_ENABLE_ALT_DRIVERS"), RTLD_NOW | RTLD_NOLOAD);
  ASSERT_NE(library, nullptr);
  const auto get =
      reinterpret_cast<ze_pfnGetDeviceProcAddrTable_t>(dlsym(library, "zeGetDeviceProcAddrTable"));
  ASSERT_NE(get, nullptr);
  ze_device_dditable_t table{};
  ASSERT_EQ(get(ZE_API_VERSION_1_0, &table), ZE_RESULT_SUCCESS);
  EXPECT_NE(table.pfnGetStatus, nullptr);
  EXPECT_EQ(table.pfnGetGlobalTimestamps, nullptr);
  EXPECT_EQ(table.pfnReserveCacheExt, nullptr);
  ASSERT_EQ(get(ZE_API_VERSION_1_2, &table), ZE_RESULT_SUCCESS);
  EXPECT_NE(table.pfnReserveCacheExt, nullptr);
  EXPECT_EQ(table.pfnPciGetPropertiesExt, nullptr);
  EXPECT_EQ(get(static_cast<ze_api_version_t>(ZE_MAKE_VERSION(1, 14)), &table), ZE_RESULT_SUCCESS);
  EXPECT_EQ(get(static_cast<ze_api_version_t>(ZE_MAKE_VERSION(2, 0)), &table),
            ZE_RESULT_ERROR_UNSUPPORTED_VERSION);
  dlclose(library);
}

XPUD_ON_ALL_BACK_ENDS(DriverTest);

}  // namespace
}  // namespace xpud::drivers
