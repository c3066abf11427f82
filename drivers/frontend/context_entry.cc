// Entry points zeContext* and zeMem*.
#include "drivers/frontend/context.h"

#include <level_zero/ze_ddi.h>

#include <bit>

#include "drivers/frontend/entry.h"
#include "drivers/frontend/extension_chain.h"
#include "drivers/frontend/table.h"
#include "proto/base/ze_ext.h"

namespace xpud::drivers {
namespace {

ze_result_t Create(ze_driver_handle_t handle, const ze_context_desc_t* desc, ze_context_handle_t* context) {
  XPUD_FIND(Driver, driver, handle);
  XPUD_NOT_NULL(desc);
  XPUD_NOT_NULL(context);
  return CreateInto<Context>(context,
                             [&](std::unique_ptr<Context>& out) { return driver.CreateContext(*desc, out); });
}

ze_result_t CreateEx(ze_driver_handle_t handle, const ze_context_desc_t* desc, uint32_t num_devices,
                     ze_device_handle_t* devices, ze_context_handle_t* context) {
  XPUD_FIND(Driver, driver, handle);
  const ze_result_t result = Guard([&] { return Resolved<Device>().Resolve(&driver, num_devices, devices); });
  return result == ZE_RESULT_SUCCESS ? Create(handle, desc, context) : result;
}

ze_result_t GetStatus(ze_context_handle_t handle) {
  XPUD_FIND(Context, context, handle);
  for (const Device* device : context.driver()->Devices()) {
    const ze_result_t result = device->GetStatus();
    if (result != ZE_RESULT_SUCCESS) return result;
  }
  return ZE_RESULT_SUCCESS;
}

// Residency is left to the back end: memory is usable from allocation to free.
ze_result_t SystemBarrier(ze_context_handle_t context_handle, ze_device_handle_t device_handle) {
  XPUD_FIND(Context, context, context_handle);
  XPUD_FIND(Device, device, device_handle);
  return context.driver() == device.driver() ? ZE_RESULT_SUCCESS : ZE_RESULT_ERROR_INVALID_ARGUMENT;
}

ze_result_t SetResidency(ze_context_handle_t context, ze_device_handle_t device, void* address, size_t size) {
  const ze_result_t result = SystemBarrier(context, device);
  if (result != ZE_RESULT_SUCCESS) return result;
  XPUD_NOT_NULL(address);
  return size == 0 ? ZE_RESULT_ERROR_UNSUPPORTED_SIZE : ZE_RESULT_SUCCESS;
}

bool IsMultiple(const void* address, size_t unit) { return reinterpret_cast<uintptr_t>(address) % unit == 0; }

// Reads a descriptor's chain of extension structures. A driver without our extensions exports and imports no
// memory, and ignores our structure.
ze_result_t ReadChain(const Driver& driver, const void* next, MemoryRequest& request) {
  using Place = const xpud_mem_address_desc_t;
  const ze_result_t result = ReadSharing(driver, next, request);
  if (result != ZE_RESULT_SUCCESS) return result;
  if (!driver.HasExtensions()) return ZE_RESULT_SUCCESS;
  if (Place* const place = FindInChain<Place>(next, XPUD_STRUCTURE_TYPE_MEM_ADDRESS_DESC)) {
    XPUD_NOT_NULL(place->address);
    XPUD_REQUIRE(request.type == ZE_MEMORY_TYPE_DEVICE, ZE_RESULT_ERROR_UNSUPPORTED_FEATURE);
    XPUD_REQUIRE(IsMultiple(place->address, std::max(request.alignment, XPUD_MEM_ADDRESS_UNIT)),
                 ZE_RESULT_ERROR_UNSUPPORTED_ALIGNMENT);
    request.address = place->address;
  }
  return ZE_RESULT_SUCCESS;
}

ze_result_t Allocate(ze_context_handle_t context_handle, ze_device_handle_t device_handle,
                     MemoryRequest request, const void* next, void** address) {
  XPUD_FIND(Context, context, context_handle);
  XPUD_NOT_NULL(address);
  XPUD_REQUIRE(request.size != 0, ZE_RESULT_ERROR_UNSUPPORTED_SIZE);
  const bool aligned = request.alignment == 0 || std::has_single_bit(request.alignment);
  XPUD_REQUIRE(aligned, ZE_RESULT_ERROR_UNSUPPORTED_ALIGNMENT);
  if (device_handle != nullptr) {
    XPUD_FIND(Device, device, device_handle);
    XPUD_REQUIRE(device.driver() == context.driver(), ZE_RESULT_ERROR_INVALID_ARGUMENT);
    request.device = &device;
  }
  const ze_result_t result = ReadChain(*context.driver(), next, request);
  if (result != ZE_RESULT_SUCCESS) return result;
  return Guard([&] { return context.Allocate(request, *address); });
}

ze_result_t AllocDevice(ze_context_handle_t context, const ze_device_mem_alloc_desc_t* desc, size_t size,
                        size_t alignment, ze_device_handle_t device, void** address) {
  XPUD_NOT_NULL(desc);
  XPUD_REQUIRE(device != nullptr, ZE_RESULT_ERROR_INVALID_NULL_HANDLE);
  return Allocate(context, device, {ZE_MEMORY_TYPE_DEVICE, size, alignment}, desc->pNext, address);
}

ze_result_t AllocHost(ze_context_handle_t context, const ze_host_mem_alloc_desc_t* desc, size_t size,
                      size_t alignment, void** address) {
  XPUD_NOT_NULL(desc);
  return Allocate(context, nullptr, {ZE_MEMORY_TYPE_HOST, size, alignment}, desc->pNext, address);
}

ze_result_t AllocShared(ze_context_handle_t context, const ze_device_mem_alloc_desc_t* device_desc,
                        const ze_host_mem_alloc_desc_t* host_desc, size_t size, size_t alignment,
                        ze_device_handle_t device, void** address) {
  XPUD_NOT_NULL(device_desc);
  XPUD_NOT_NULL(host_desc);
  return Allocate(context, device, {ZE_MEMORY_TYPE_SHARED, size, alignment}, device_desc->pNext, address);
}

ze_result_t Free(ze_context_handle_t handle, void* address) {
  XPUD_FIND(Context, context, handle);
  XPUD_NOT_NULL(address);
  return Guard([&] { return context.Free(address, 0); });
}

ze_result_t FreeExt(ze_context_handle_t handle, const ze_memory_free_ext_desc_t* desc, void* address) {
  XPUD_FIND(Context, context, handle);
  XPUD_NOT_NULL(desc);
  XPUD_NOT_NULL(address);
  return Guard([&] { return context.Free(address, desc->freePolicy); });
}

ze_result_t GetAllocProperties(ze_context_handle_t handle, const void* address,
                               ze_memory_allocation_properties_t* properties,
                               ze_device_handle_t* device_out) {
  XPUD_FIND(Context, context, handle);
  XPUD_NOT_NULL(address);
  XPUD_NOT_NULL(properties);
  Device* device = nullptr;
  const ze_result_t result = Guard([&] { return context.GetAllocProperties(address, *properties, device); });
  if (result == ZE_RESULT_SUCCESS && device_out != nullptr) {
    *device_out = device == nullptr ? nullptr : static_cast<ze_device_handle_t>(device->handle());
  }
  return result;
}

ze_result_t GetAddressRange(ze_context_handle_t handle, const void* address, void** base_out,
                            size_t* size_out) {
  XPUD_FIND(Context, context, handle);
  XPUD_NOT_NULL(address);
  void* base = nullptr;
  size_t size = 0;
  const ze_result_t result = context.GetAddressRange(address, base, size);
  if (result != ZE_RESULT_SUCCESS) return result;
  if (base_out != nullptr) *base_out = base;
  if (size_out != nullptr) *size_out = size;
  return ZE_RESULT_SUCCESS;
}

}  // namespace
}  // namespace xpud::drivers

using namespace xpud::drivers;

XPUD_DDI_TABLE(zeGetContextProcAddrTable, ze_context_dditable_t) {
  put.Put(table.pfnCreate, Create);
  put.Put(table.pfnDestroy, Destroy<Context>);
  put.Put(table.pfnGetStatus, GetStatus);
  put.Put(table.pfnSystemBarrier, SystemBarrier);
  put.Put(table.pfnMakeMemoryResident, SetResidency);
  put.Put(table.pfnEvictMemory, SetResidency);
  put.PutUnsupported(ZE_API_VERSION_1_0, table.pfnMakeImageResident, table.pfnEvictImage);
  put.Put(table.pfnCreateEx, CreateEx, ZE_API_VERSION_1_1);
}

XPUD_DDI_TABLE(zeGetMemProcAddrTable, ze_mem_dditable_t) {
  put.Put(table.pfnAllocShared, AllocShared);
  put.Put(table.pfnAllocDevice, AllocDevice);
  put.Put(table.pfnAllocHost, AllocHost);
  put.Put(table.pfnFree, Free);
  put.Put(table.pfnGetAllocProperties, GetAllocProperties);
  put.Put(table.pfnGetAddressRange, GetAddressRange);
  put.PutUnsupported(ZE_API_VERSION_1_0, table.pfnGetIpcHandle, table.pfnOpenIpcHandle,
                     table.pfnCloseIpcHandle);
  put.Put(table.pfnFreeExt, FreeExt, ZE_API_VERSION_1_3);
}
