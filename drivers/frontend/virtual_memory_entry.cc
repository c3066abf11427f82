// Entry points zeVirtualMem* and zePhysicalMem*. An address or an offset that is not a multiple of the
// smallest page gives UNSUPPORTED_ALIGNMENT, such a size UNSUPPORTED_SIZE.
#include "drivers/frontend/virtual_memory_entry.h"

#include <level_zero/ze_ddi.h>

#include "drivers/frontend/context.h"
#include "drivers/frontend/entry.h"
#include "drivers/frontend/table.h"

namespace xpud::drivers {
namespace {

ze_result_t CheckRange(const Context& context, const void* address, size_t size) {
  XPUD_NOT_NULL(address);
  XPUD_REQUIRE(size != 0 && size % context.PageSize(1) == 0, ZE_RESULT_ERROR_UNSUPPORTED_SIZE);
  XPUD_REQUIRE(reinterpret_cast<uintptr_t>(address) % context.PageSize(1) == 0,
               ZE_RESULT_ERROR_UNSUPPORTED_ALIGNMENT);
  return ZE_RESULT_SUCCESS;
}

ze_result_t CheckAccess(ze_memory_access_attribute_t access) {
  XPUD_REQUIRE(static_cast<uint32_t>(access) <= ZE_MEMORY_ACCESS_ATTRIBUTE_READONLY,
               ZE_RESULT_ERROR_INVALID_ENUMERATION);
  return ZE_RESULT_SUCCESS;
}

ze_result_t Reserve(ze_context_handle_t handle, const void* start, size_t size, void** address) {
  XPUD_FIND(Context, context, handle);
  XPUD_NOT_NULL(address);
  const size_t page = context.PageSize(1);
  XPUD_REQUIRE(size != 0 && size % page == 0, ZE_RESULT_ERROR_UNSUPPORTED_SIZE);
  XPUD_REQUIRE(reinterpret_cast<uintptr_t>(start) % page == 0, ZE_RESULT_ERROR_UNSUPPORTED_ALIGNMENT);
  return Guard([&] { return context.Reserve(const_cast<void*>(start), size, *address); });
}

ze_result_t Free(ze_context_handle_t handle, const void* address, size_t size) {
  XPUD_FIND(Context, context, handle);
  const ze_result_t result = CheckRange(context, address, size);
  if (result != ZE_RESULT_SUCCESS) return result;
  return Guard([&] { return context.virtual_memory().Free(address, size); });
}

ze_result_t QueryPageSize(ze_context_handle_t context_handle, ze_device_handle_t device_handle, size_t size,
                          size_t* page_size) {
  XPUD_FIND(Context, context, context_handle);
  XPUD_FIND(Device, device, device_handle);
  XPUD_NOT_NULL(page_size);
  XPUD_REQUIRE(device.driver() == context.driver(), ZE_RESULT_ERROR_INVALID_ARGUMENT);
  XPUD_REQUIRE(size != 0, ZE_RESULT_ERROR_UNSUPPORTED_SIZE);
  *page_size = context.PageSize(size);
  return ZE_RESULT_SUCCESS;
}

ze_result_t Create(ze_context_handle_t context_handle, ze_device_handle_t device_handle,
                   ze_physical_mem_desc_t* desc, ze_physical_mem_handle_t* memory) {
  XPUD_FIND(Context, context, context_handle);
  XPUD_FIND(Device, device, device_handle);
  XPUD_NOT_NULL(desc);
  XPUD_NOT_NULL(memory);
  XPUD_REQUIRE(device.driver() == context.driver(), ZE_RESULT_ERROR_INVALID_ARGUMENT);
  XPUD_REQUIRE(desc->flags <= ZE_PHYSICAL_MEM_FLAG_TBD, ZE_RESULT_ERROR_INVALID_ENUMERATION);
  XPUD_REQUIRE(desc->size != 0, ZE_RESULT_ERROR_UNSUPPORTED_SIZE);
  XPUD_REQUIRE(desc->size % context.PageSize(1) == 0, ZE_RESULT_ERROR_UNSUPPORTED_ALIGNMENT);
  MemoryRequest request{ZE_MEMORY_TYPE_DEVICE, desc->size, 0, &device};
  const ze_result_t result = ReadSharing(*context.driver(), desc->pNext, request);
  if (result != ZE_RESULT_SUCCESS) return result;
  return Guard([&] {
    const ze_result_t made = CreateInto<PhysicalMemory>(memory, [&](std::unique_ptr<PhysicalMemory>& out) {
      return context.CreatePhysicalMemory(request, out);
    });
    if (made == ZE_RESULT_SUCCESS) context.virtual_memory().Keep(*memory);
    return made;
  });
}

// Only the context that made the memory may use it.
ze_result_t CheckOwner(const Context& context, const PhysicalMemory& memory) {
  return &memory.context() == &context ? ZE_RESULT_SUCCESS : ZE_RESULT_ERROR_INVALID_ARGUMENT;
}

ze_result_t DestroyPhysical(ze_context_handle_t context_handle, ze_physical_mem_handle_t memory_handle) {
  XPUD_FIND(Context, context, context_handle);
  XPUD_FIND(PhysicalMemory, memory, memory_handle);
  ze_result_t result = CheckOwner(context, memory);
  if (result == ZE_RESULT_SUCCESS) result = context.virtual_memory().Forget(memory);
  return result == ZE_RESULT_SUCCESS ? Destroy<PhysicalMemory>(memory_handle) : result;
}

ze_result_t Map(ze_context_handle_t context_handle, const void* address, size_t size,
                ze_physical_mem_handle_t memory_handle, size_t offset, ze_memory_access_attribute_t access) {
  XPUD_FIND(Context, context, context_handle);
  XPUD_FIND(PhysicalMemory, memory, memory_handle);
  ze_result_t result = CheckRange(context, address, size);
  if (result == ZE_RESULT_SUCCESS) result = CheckAccess(access);
  if (result == ZE_RESULT_SUCCESS) result = CheckOwner(context, memory);
  if (result != ZE_RESULT_SUCCESS) return result;
  XPUD_REQUIRE(offset % context.PageSize(1) == 0, ZE_RESULT_ERROR_UNSUPPORTED_ALIGNMENT);
  return Guard([&] { return context.virtual_memory().Map(address, size, memory, offset, access); });
}

ze_result_t Unmap(ze_context_handle_t handle, const void* address, size_t size) {
  XPUD_FIND(Context, context, handle);
  const ze_result_t result = CheckRange(context, address, size);
  if (result != ZE_RESULT_SUCCESS) return result;
  return Guard([&] { return context.virtual_memory().Unmap(address, size); });
}

ze_result_t SetAccessAttribute(ze_context_handle_t handle, const void* address, size_t size,
                               ze_memory_access_attribute_t access) {
  XPUD_FIND(Context, context, handle);
  ze_result_t result = CheckRange(context, address, size);
  if (result == ZE_RESULT_SUCCESS) result = CheckAccess(access);
  if (result != ZE_RESULT_SUCCESS) return result;
  return Guard([&] { return context.virtual_memory().SetAccess(address, size, access); });
}

ze_result_t GetAccessAttribute(ze_context_handle_t handle, const void* address, size_t size,
                               ze_memory_access_attribute_t* access, size_t* same) {
  XPUD_FIND(Context, context, handle);
  const ze_result_t result = CheckRange(context, address, size);
  if (result != ZE_RESULT_SUCCESS) return result;
  XPUD_NOT_NULL(access);
  XPUD_NOT_NULL(same);
  return context.virtual_memory().GetAccess(address, size, *access, *same);
}

}  // namespace

ze_result_t PhysicalMemGetProperties(ze_context_handle_t context_handle,
                                     ze_physical_mem_handle_t memory_handle,
                                     xpud_physical_mem_properties_t* properties) {
  XPUD_FIND(Context, context, context_handle);
  XPUD_FIND(PhysicalMemory, memory, memory_handle);
  XPUD_NOT_NULL(properties);
  const ze_result_t result = CheckOwner(context, memory);
  if (result != ZE_RESULT_SUCCESS) return result;
  properties->id = memory.id();
  properties->size = memory.block().size();
  return ExportIfAsked(properties->pNext, memory.exportable(), memory.block());
}

}  // namespace xpud::drivers

using namespace xpud::drivers;

XPUD_DDI_TABLE(zeGetPhysicalMemProcAddrTable, ze_physical_mem_dditable_t) {
  put.Put(table.pfnCreate, Create);
  put.Put(table.pfnDestroy, DestroyPhysical);
}

XPUD_DDI_TABLE(zeGetVirtualMemProcAddrTable, ze_virtual_mem_dditable_t) {
  put.Put(table.pfnReserve, Reserve);
  put.Put(table.pfnFree, Free);
  put.Put(table.pfnQueryPageSize, QueryPageSize);
  put.Put(table.pfnMap, Map);
  put.Put(table.pfnUnmap, Unmap);
  put.Put(table.pfnSetAccessAttribute, SetAccessAttribute);
  put.Put(table.pfnGetAccessAttribute, GetAccessAttribute);
}
