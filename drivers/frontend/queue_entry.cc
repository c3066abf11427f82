// Entry points zeCommandQueue*, and the parts of zeCommandList* that create, close and destroy lists.
#include <level_zero/ze_ddi.h>

#include "drivers/frontend/context.h"
#include "drivers/frontend/entry.h"
#include "drivers/frontend/list_entry.h"
#include "drivers/frontend/table.h"
#include "proto/base/ze_ext.h"

namespace xpud::drivers {
namespace {

// Checks that the queue group and index exist. API 1.9's in-order flag is accepted, because lists are always
// in order.
ze_result_t Check(const Device& device, const ze_command_queue_desc_t& desc) {
  constexpr ze_command_queue_flags_t kKnown =
      ZE_COMMAND_QUEUE_FLAG_EXPLICIT_ONLY | XPUD_ZE_COMMAND_QUEUE_FLAG_IN_ORDER;
  XPUD_REQUIRE((desc.flags & ~kKnown) == 0, ZE_RESULT_ERROR_INVALID_ENUMERATION);
  const auto groups = device.QueueGroups();
  const bool exists = desc.ordinal < groups.size() && desc.index < groups[desc.ordinal].numQueues;
  return exists ? ZE_RESULT_SUCCESS : ZE_RESULT_ERROR_INVALID_ARGUMENT;
}

ze_result_t Check(const Device& device, const ze_command_list_desc_t& desc) {
  const bool exists = desc.commandQueueGroupOrdinal < device.QueueGroups().size();
  return exists ? ZE_RESULT_SUCCESS : ZE_RESULT_ERROR_INVALID_ARGUMENT;
}

// Creates a queue, list or immediate list in a context, for a device and a descriptor.
template <typename T, typename Desc,
          ze_result_t (Context::*kCreate)(Device&, const Desc&, std::unique_ptr<T>&)>
ze_result_t CreateOnDevice(ze_context_handle_t context_handle, ze_device_handle_t device_handle,
                           const Desc* desc, typename T::Handle* out_handle) {
  XPUD_FIND(Context, context, context_handle);
  XPUD_FIND(Device, device, device_handle);
  XPUD_NOT_NULL(desc);
  XPUD_NOT_NULL(out_handle);
  XPUD_REQUIRE(context.driver() == device.driver(), ZE_RESULT_ERROR_INVALID_ARGUMENT);
  return CreateInto<T>(out_handle, [&](std::unique_ptr<T>& out) {
    const ze_result_t result = Check(device, *desc);
    return result == ZE_RESULT_SUCCESS ? (context.*kCreate)(device, *desc, out) : result;
  });
}

ze_result_t Execute(ze_command_queue_handle_t handle, uint32_t count, ze_command_list_handle_t* lists,
                    ze_fence_handle_t fence_handle) {
  XPUD_FIND(CommandQueue, queue, handle);
  XPUD_NOT_NULL(lists);
  XPUD_REQUIRE(count != 0, ZE_RESULT_ERROR_INVALID_SIZE);
  Fence* fence = nullptr;
  if (fence_handle != nullptr) {
    fence = HandleTable::Find<Fence>(fence_handle);
    const bool ours = fence != nullptr && fence->driver() == queue.driver();
    XPUD_REQUIRE(ours, ZE_RESULT_ERROR_INVALID_SYNCHRONIZATION_OBJECT);
  }
  return Guard([&]() -> ze_result_t {
    Resolved<CommandList> resolved;
    const ze_result_t result = resolved.Resolve(queue.driver(), count, lists);
    if (result != ZE_RESULT_SUCCESS) return result;
    for (const CommandList* list : resolved.objects()) {
      XPUD_REQUIRE(!list->immediate(), ZE_RESULT_ERROR_INVALID_COMMAND_LIST_TYPE);
    }
    return queue.Execute(resolved.objects(), fence);
  });
}

ze_result_t Synchronize(ze_command_queue_handle_t handle, uint64_t timeout_ns) {
  XPUD_FIND(CommandQueue, queue, handle);
  return queue.Synchronize(timeout_ns);
}

ze_result_t Close(ze_command_list_handle_t handle) {
  XPUD_FIND(CommandList, list, handle);
  return Guard([&] { return list.Close(); });
}

ze_result_t Reset(ze_command_list_handle_t handle) {
  XPUD_FIND(CommandList, list, handle);
  return Guard([&] { return list.Reset(); });
}

}  // namespace
}  // namespace xpud::drivers

using namespace xpud::drivers;

XPUD_DDI_TABLE(zeGetCommandQueueProcAddrTable, ze_command_queue_dditable_t) {
  put.Put(table.pfnCreate, CreateOnDevice<CommandQueue, ze_command_queue_desc_t, &Context::CreateQueue>);
  put.Put(table.pfnDestroy, Destroy<CommandQueue>);
  put.Put(table.pfnExecuteCommandLists, Execute);
  put.Put(table.pfnSynchronize, Synchronize);
}

XPUD_DDI_TABLE(zeGetCommandListProcAddrTable, ze_command_list_dditable_t) {
  put.Put(table.pfnCreate, CreateOnDevice<CommandList, ze_command_list_desc_t, &Context::CreateList>);
  put.Put(table.pfnCreateImmediate,
          CreateOnDevice<CommandList, ze_command_queue_desc_t, &Context::CreateImmediateList>);
  put.Put(table.pfnDestroy, Destroy<CommandList>);
  put.Put(table.pfnClose, Close);
  put.Put(table.pfnReset, Reset);
  PutAppends(put, table);
}
