// Entry points zeDevice*.
#include <level_zero/ze_ddi.h>

#include "drivers/frontend/driver.h"
#include "drivers/frontend/entry.h"
#include "drivers/frontend/table.h"

namespace xpud::drivers {
namespace {

ze_result_t Get(ze_driver_handle_t handle, uint32_t* count, ze_device_handle_t* devices) {
  XPUD_FIND(Driver, driver, handle);
  XPUD_NOT_NULL(count);
  return Answer(driver.Devices(), count, devices, [](ze_device_handle_t& out, Device* device) {
    out = static_cast<ze_device_handle_t>(device->handle());
  });
}

ze_result_t GetSubDevices(ze_device_handle_t handle, uint32_t* count, ze_device_handle_t*) {
  XPUD_FIND(Device, device, handle);
  XPUD_NOT_NULL(count);
  static_cast<void>(device);
  *count = 0;
  return ZE_RESULT_SUCCESS;
}

// Fills one structure with a member function of Device.
template <typename T, void (Device::*kFill)(T&) const>
ze_result_t GetStructure(ze_device_handle_t handle, T* out) {
  XPUD_FIND(Device, device, handle);
  XPUD_NOT_NULL(out);
  T value = *out;
  (device.*kFill)(value);
  AssignKeepingChain(*out, value);
  return ZE_RESULT_SUCCESS;
}

// Returns a list of structures from a member function of Device.
template <typename T, std::vector<T> (Device::*kList)() const>
ze_result_t GetStructures(ze_device_handle_t handle, uint32_t* count, T* out) {
  XPUD_FIND(Device, device, handle);
  XPUD_NOT_NULL(count);
  return Guard([&] { return Answer((device.*kList)(), count, out, AssignKeepingChain<T>); });
}

ze_result_t GetP2PProperties(ze_device_handle_t handle, ze_device_handle_t peer_handle,
                             ze_device_p2p_properties_t* properties) {
  XPUD_FIND(Device, device, handle);
  XPUD_FIND(Device, peer, peer_handle);
  XPUD_NOT_NULL(properties);
  properties->flags = device.CanAccessPeer(peer) ? ZE_DEVICE_P2P_PROPERTY_FLAG_ACCESS : 0;
  return ZE_RESULT_SUCCESS;
}

ze_result_t CanAccessPeer(ze_device_handle_t handle, ze_device_handle_t peer_handle, ze_bool_t* value) {
  XPUD_FIND(Device, device, handle);
  XPUD_FIND(Device, peer, peer_handle);
  XPUD_NOT_NULL(value);
  *value = device.CanAccessPeer(peer);
  return ZE_RESULT_SUCCESS;
}

ze_result_t GetStatus(ze_device_handle_t handle) {
  XPUD_FIND(Device, device, handle);
  return device.GetStatus();
}

ze_result_t GetGlobalTimestamps(ze_device_handle_t handle, uint64_t* host_time, uint64_t* device_time) {
  XPUD_FIND(Device, device, handle);
  XPUD_NOT_NULL(host_time);
  XPUD_NOT_NULL(device_time);
  device.GetGlobalTimestamps(*host_time, *device_time);
  return ZE_RESULT_SUCCESS;
}

ze_result_t PciGetProperties(ze_device_handle_t handle, ze_pci_ext_properties_t* properties) {
  XPUD_FIND(Device, device, handle);
  XPUD_NOT_NULL(properties);
  return Guard([&] {
    ze_pci_ext_properties_t value{};
    const ze_result_t result = device.GetPciProperties(value);
    if (result == ZE_RESULT_SUCCESS) AssignKeepingChain(*properties, value);
    return result;
  });
}

}  // namespace
}  // namespace xpud::drivers

using namespace xpud::drivers;

XPUD_DDI_TABLE(zeGetDeviceProcAddrTable, ze_device_dditable_t) {
  put.Put(table.pfnGet, Get);
  put.Put(table.pfnGetSubDevices, GetSubDevices);
  put.Put(table.pfnGetProperties, GetStructure<ze_device_properties_t, &Device::GetProperties>);
  put.Put(table.pfnGetComputeProperties,
          GetStructure<ze_device_compute_properties_t, &Device::GetComputeProperties>);
  put.Put(table.pfnGetModuleProperties,
          GetStructure<ze_device_module_properties_t, &Device::GetModuleProperties>);
  put.Put(table.pfnGetCommandQueueGroupProperties,
          GetStructures<ze_command_queue_group_properties_t, &Device::QueueGroups>);
  put.Put(table.pfnGetMemoryProperties, GetStructures<ze_device_memory_properties_t, &Device::Memories>);
  put.Put(table.pfnGetMemoryAccessProperties,
          GetStructure<ze_device_memory_access_properties_t, &Device::GetMemoryAccessProperties>);
  put.Put(table.pfnGetCacheProperties, GetStructures<ze_device_cache_properties_t, &Device::Caches>);
  put.Put(table.pfnGetImageProperties,
          GetStructure<ze_device_image_properties_t, &Device::GetImageProperties>);
  put.Put(table.pfnGetExternalMemoryProperties,
          GetStructure<ze_device_external_memory_properties_t, &Device::GetExternalMemoryProperties>);
  put.Put(table.pfnGetP2PProperties, GetP2PProperties);
  put.Put(table.pfnCanAccessPeer, CanAccessPeer);
  put.Put(table.pfnGetStatus, GetStatus);
  put.Put(table.pfnGetGlobalTimestamps, GetGlobalTimestamps, ZE_API_VERSION_1_1);
  put.PutUnsupported(ZE_API_VERSION_1_2, table.pfnReserveCacheExt, table.pfnSetCacheAdviceExt);
  put.Put(table.pfnPciGetPropertiesExt, PciGetProperties, ZE_API_VERSION_1_3);
}

XPUD_DDI_TABLE(zeGetDeviceExpProcAddrTable, ze_device_exp_dditable_t) {
  put.PutUnsupported(ZE_API_VERSION_1_4, table.pfnGetFabricVertexExp);
}
