// Entry points zeEventPool*, zeEvent* and zeFence*.
#include "drivers/frontend/event.h"

#include <level_zero/ze_ddi.h>

#include "drivers/frontend/context.h"
#include "drivers/frontend/entry.h"
#include "drivers/frontend/table.h"

namespace xpud::drivers {
namespace {

ze_result_t PoolCreate(ze_context_handle_t handle, const ze_event_pool_desc_t* desc, uint32_t num_devices,
                       ze_device_handle_t* devices, ze_event_pool_handle_t* pool) {
  XPUD_FIND(Context, context, handle);
  XPUD_NOT_NULL(desc);
  XPUD_NOT_NULL(pool);
  XPUD_REQUIRE(desc->count != 0, ZE_RESULT_ERROR_INVALID_SIZE);
  XPUD_REQUIRE((desc->flags & ZE_EVENT_POOL_FLAG_IPC) == 0, ZE_RESULT_ERROR_UNSUPPORTED_FEATURE);
  const ze_result_t result =
      Guard([&] { return Resolved<Device>().Resolve(context.driver(), num_devices, devices); });
  if (result != ZE_RESULT_SUCCESS) return result;
  return CreateInto<EventPool>(
      pool, [&](std::unique_ptr<EventPool>& out) { return context.CreateEventPool(*desc, out); });
}

ze_result_t Create(ze_event_pool_handle_t handle, const ze_event_desc_t* desc, ze_event_handle_t* event) {
  XPUD_FIND(EventPool, pool, handle);
  XPUD_NOT_NULL(desc);
  XPUD_NOT_NULL(event);
  return CreateInto<Event>(event, [&](std::unique_ptr<Event>& out) { return pool.CreateEvent(*desc, out); });
}

ze_result_t HostSignal(ze_event_handle_t handle) {
  XPUD_FIND(Event, event, handle);
  event.HostSignal();
  return ZE_RESULT_SUCCESS;
}

ze_result_t HostReset(ze_event_handle_t handle) {
  XPUD_FIND(Event, event, handle);
  event.HostReset();
  return ZE_RESULT_SUCCESS;
}

ze_result_t HostSynchronize(ze_event_handle_t handle, uint64_t timeout_ns) {
  XPUD_FIND(Event, event, handle);
  return event.HostSynchronize(timeout_ns);
}

ze_result_t QueryStatus(ze_event_handle_t handle) {
  XPUD_FIND(Event, event, handle);
  return event.QueryStatus();
}

ze_result_t QueryKernelTimestamp(ze_event_handle_t handle, ze_kernel_timestamp_result_t* timestamp) {
  XPUD_FIND(Event, event, handle);
  XPUD_NOT_NULL(timestamp);
  return event.QueryTimestamp(*timestamp);
}

ze_result_t QueryTimestampsExp(ze_event_handle_t handle, ze_device_handle_t device_handle, uint32_t* count,
                               ze_kernel_timestamp_result_t* timestamps) {
  XPUD_FIND(Event, event, handle);
  XPUD_FIND(Device, device, device_handle);
  XPUD_NOT_NULL(count);
  XPUD_REQUIRE(event.driver() == device.driver(), ZE_RESULT_ERROR_INVALID_ARGUMENT);
  *count = 1;
  return timestamps == nullptr ? ZE_RESULT_SUCCESS : event.QueryTimestamp(*timestamps);
}

ze_result_t FenceCreate(ze_command_queue_handle_t handle, const ze_fence_desc_t* desc,
                        ze_fence_handle_t* fence) {
  XPUD_FIND(CommandQueue, queue, handle);
  XPUD_NOT_NULL(desc);
  XPUD_NOT_NULL(fence);
  return CreateInto<Fence>(fence, [&](std::unique_ptr<Fence>& out) { return queue.CreateFence(*desc, out); });
}

ze_result_t FenceHostSynchronize(ze_fence_handle_t handle, uint64_t timeout_ns) {
  XPUD_FIND(Fence, fence, handle);
  return fence.HostSynchronize(timeout_ns);
}

ze_result_t FenceQueryStatus(ze_fence_handle_t handle) {
  XPUD_FIND(Fence, fence, handle);
  return fence.QueryStatus();
}

ze_result_t FenceReset(ze_fence_handle_t handle) {
  XPUD_FIND(Fence, fence, handle);
  fence.Reset();
  return ZE_RESULT_SUCCESS;
}

}  // namespace
}  // namespace xpud::drivers

using namespace xpud::drivers;

XPUD_DDI_TABLE(zeGetEventPoolProcAddrTable, ze_event_pool_dditable_t) {
  put.Put(table.pfnCreate, PoolCreate);
  put.Put(table.pfnDestroy, Destroy<EventPool>);
  put.PutUnsupported(ZE_API_VERSION_1_0, table.pfnGetIpcHandle, table.pfnOpenIpcHandle,
                     table.pfnCloseIpcHandle);
}

XPUD_DDI_TABLE(zeGetEventProcAddrTable, ze_event_dditable_t) {
  put.Put(table.pfnCreate, Create);
  put.Put(table.pfnDestroy, Destroy<Event>);
  put.Put(table.pfnHostSignal, HostSignal);
  put.Put(table.pfnHostSynchronize, HostSynchronize);
  put.Put(table.pfnQueryStatus, QueryStatus);
  put.Put(table.pfnHostReset, HostReset);
  put.Put(table.pfnQueryKernelTimestamp, QueryKernelTimestamp);
}

XPUD_DDI_TABLE(zeGetEventExpProcAddrTable, ze_event_exp_dditable_t) {
  put.Put(table.pfnQueryTimestampsExp, QueryTimestampsExp, ZE_API_VERSION_1_2);
}

XPUD_DDI_TABLE(zeGetFenceProcAddrTable, ze_fence_dditable_t) {
  put.Put(table.pfnCreate, FenceCreate);
  put.Put(table.pfnDestroy, Destroy<Fence>);
  put.Put(table.pfnHostSynchronize, FenceHostSynchronize);
  put.Put(table.pfnQueryStatus, FenceQueryStatus);
  put.Put(table.pfnReset, FenceReset);
}
