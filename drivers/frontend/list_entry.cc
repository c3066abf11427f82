// Entry points zeCommandListAppend*.
#include "drivers/frontend/list_entry.h"

#include "drivers/frontend/command_list.h"
#include "drivers/frontend/driver.h"
#include "drivers/frontend/entry.h"

namespace xpud::drivers {
namespace {

ze_result_t AppendLaunchKernel(ze_command_list_handle_t list_handle, ze_kernel_handle_t kernel_handle,
                               const ze_group_count_t* groups, ze_event_handle_t signal, uint32_t num_waits,
                               ze_event_handle_t* waits) {
  XPUD_FIND(CommandList, list, list_handle);
  XPUD_FIND(Kernel, kernel, kernel_handle);
  XPUD_NOT_NULL(groups);
  XPUD_REQUIRE(kernel.driver() == list.driver(), ZE_RESULT_ERROR_INVALID_ARGUMENT);
  return WithSync(list, signal, num_waits, waits,
                  [&](const Sync& sync) { return list.AppendLaunch(kernel, LaunchShape{*groups}, sync); });
}

ze_result_t AppendLaunchCooperative(ze_command_list_handle_t list, ze_kernel_handle_t kernel_handle,
                                    const ze_group_count_t* groups, ze_event_handle_t signal,
                                    uint32_t num_waits, ze_event_handle_t* waits) {
  XPUD_FIND(Kernel, kernel, kernel_handle);
  XPUD_NOT_NULL(groups);
  const uint64_t limit = kernel.MaxCooperativeGroups();
  const uint64_t area = uint64_t{groups->groupCountX} * groups->groupCountY;
  const bool fits = area <= limit && area * groups->groupCountZ <= limit;
  XPUD_REQUIRE(fits, ZE_RESULT_ERROR_INVALID_GROUP_SIZE_DIMENSION);
  return AppendLaunchKernel(list, kernel_handle, groups, signal, num_waits, waits);
}

ze_result_t AppendLaunchIndirect(ze_command_list_handle_t list_handle, ze_kernel_handle_t kernel_handle,
                                 const ze_group_count_t* groups, ze_event_handle_t signal, uint32_t num_waits,
                                 ze_event_handle_t* waits) {
  XPUD_FIND(CommandList, list, list_handle);
  XPUD_FIND(Kernel, kernel, kernel_handle);
  XPUD_NOT_NULL(groups);
  XPUD_REQUIRE(kernel.driver() == list.driver(), ZE_RESULT_ERROR_INVALID_ARGUMENT);
  return WithSync(list, signal, num_waits, waits,
                  [&](const Sync& sync) { return list.AppendLaunchIndirect(kernel, groups, sync); });
}

ze_result_t AppendLaunchMultiple(ze_command_list_handle_t list_handle, uint32_t count,
                                 ze_kernel_handle_t* kernels, const uint32_t* count_buffer,
                                 const ze_group_count_t* groups, ze_event_handle_t signal, uint32_t num_waits,
                                 ze_event_handle_t* waits) {
  XPUD_FIND(CommandList, list, list_handle);
  XPUD_NOT_NULL(kernels);
  XPUD_NOT_NULL(count_buffer);
  XPUD_NOT_NULL(groups);
  return Guard([&]() -> ze_result_t {
    Resolved<Kernel> resolved;
    const ze_result_t result = resolved.Resolve(list.driver(), count, kernels);
    if (result != ZE_RESULT_SUCCESS) return result;
    return WithSync(list, signal, num_waits, waits, [&](const Sync& sync) {
      return list.AppendLaunchMultiple(resolved.objects(), count_buffer, groups, sync);
    });
  });
}

ze_result_t AppendMemoryCopy(ze_command_list_handle_t handle, void* destination, const void* source,
                             size_t size, ze_event_handle_t signal, uint32_t num_waits,
                             ze_event_handle_t* waits) {
  XPUD_FIND(CommandList, list, handle);
  XPUD_NOT_NULL(destination);
  XPUD_NOT_NULL(source);
  return WithSync(list, signal, num_waits, waits,
                  [&](const Sync& sync) { return list.AppendCopy(destination, source, size, sync); });
}

ze_result_t AppendMemoryCopyFromContext(ze_command_list_handle_t list, void* destination, ze_context_handle_t,
                                        const void* source, size_t size, ze_event_handle_t signal,
                                        uint32_t num_waits, ze_event_handle_t* waits) {
  return AppendMemoryCopy(list, destination, source, size, signal, num_waits, waits);
}

ze_result_t AppendMemoryFill(ze_command_list_handle_t handle, void* destination, const void* pattern,
                             size_t pattern_size, size_t size, ze_event_handle_t signal, uint32_t num_waits,
                             ze_event_handle_t* waits) {
  XPUD_FIND(CommandList, list, handle);
  XPUD_NOT_NULL(destination);
  XPUD_NOT_NULL(pattern);
  XPUD_REQUIRE(pattern_size != 0, ZE_RESULT_ERROR_INVALID_SIZE);
  return WithSync(list, signal, num_waits, waits, [&](const Sync& sync) {
    return list.AppendFill(destination, pattern, pattern_size, size, sync);
  });
}

size_t Or(size_t value, size_t fallback) { return value == 0 ? fallback : value; }

// Returns the offset of a region's first byte in its buffer.
size_t Origin(const ze_copy_region_t& region, size_t pitch, size_t slice_pitch) {
  return region.originX + region.originY * pitch + region.originZ * slice_pitch;
}

ze_result_t AppendMemoryCopyRegion(ze_command_list_handle_t handle, void* destination,
                                   const ze_copy_region_t* to, uint32_t to_pitch, uint32_t to_slice_pitch,
                                   const void* source, const ze_copy_region_t* from, uint32_t from_pitch,
                                   uint32_t from_slice_pitch, ze_event_handle_t signal, uint32_t num_waits,
                                   ze_event_handle_t* waits) {
  XPUD_FIND(CommandList, list, handle);
  XPUD_REQUIRE(destination != nullptr && source != nullptr, ZE_RESULT_ERROR_INVALID_NULL_POINTER);
  XPUD_REQUIRE(to != nullptr && from != nullptr, ZE_RESULT_ERROR_INVALID_NULL_POINTER);
  RegionCopy copy;
  copy.width = from->width;
  copy.height = Or(from->height, 1);
  copy.depth = Or(from->depth, 1);
  copy.destination_pitch = Or(to_pitch, copy.width);
  copy.destination_slice_pitch = Or(to_slice_pitch, copy.destination_pitch * copy.height);
  copy.source_pitch = Or(from_pitch, copy.width);
  copy.source_slice_pitch = Or(from_slice_pitch, copy.source_pitch * copy.height);
  copy.destination = static_cast<std::byte*>(destination) +
                     Origin(*to, copy.destination_pitch, copy.destination_slice_pitch);
  copy.source =
      static_cast<const std::byte*>(source) + Origin(*from, copy.source_pitch, copy.source_slice_pitch);
  return WithSync(list, signal, num_waits, waits,
                  [&](const Sync& sync) { return list.AppendCopyRegion(copy, sync); });
}

ze_result_t AppendBarrier(ze_command_list_handle_t handle, ze_event_handle_t signal, uint32_t num_waits,
                          ze_event_handle_t* waits) {
  XPUD_FIND(CommandList, list, handle);
  return WithSync(list, signal, num_waits, waits, [&](const Sync& sync) { return list.AppendBarrier(sync); });
}

ze_result_t AppendMemoryRangesBarrier(ze_command_list_handle_t handle, uint32_t, const size_t* sizes,
                                      const void** ranges, ze_event_handle_t signal, uint32_t num_waits,
                                      ze_event_handle_t* waits) {
  XPUD_NOT_NULL(sizes);
  XPUD_NOT_NULL(ranges);
  return AppendBarrier(handle, signal, num_waits, waits);
}

ze_result_t AppendSignalEvent(ze_command_list_handle_t handle, ze_event_handle_t event) {
  XPUD_REQUIRE(event != nullptr, ZE_RESULT_ERROR_INVALID_NULL_HANDLE);
  return AppendBarrier(handle, event, 0, nullptr);
}

ze_result_t AppendWaitOnEvents(ze_command_list_handle_t handle, uint32_t count, ze_event_handle_t* events) {
  XPUD_NOT_NULL(events);
  return AppendBarrier(handle, nullptr, count, events);
}

ze_result_t AppendEventReset(ze_command_list_handle_t handle, ze_event_handle_t event_handle) {
  XPUD_FIND(CommandList, list, handle);
  XPUD_FIND(Event, event, event_handle);
  XPUD_REQUIRE(event.driver() == list.driver(), ZE_RESULT_ERROR_INVALID_ARGUMENT);
  return Guard([&] { return list.AppendEventReset(event); });
}

ze_result_t AppendWriteGlobalTimestamp(ze_command_list_handle_t handle, uint64_t* destination,
                                       ze_event_handle_t signal, uint32_t num_waits,
                                       ze_event_handle_t* waits) {
  XPUD_FIND(CommandList, list, handle);
  XPUD_NOT_NULL(destination);
  return WithSync(list, signal, num_waits, waits,
                  [&](const Sync& sync) { return list.AppendWriteTimestamp(destination, sync); });
}

ze_result_t AppendQueryKernelTimestamps(ze_command_list_handle_t handle, uint32_t count,
                                        ze_event_handle_t* events, void* destination, const size_t* offsets,
                                        ze_event_handle_t signal, uint32_t num_waits,
                                        ze_event_handle_t* waits) {
  XPUD_FIND(CommandList, list, handle);
  XPUD_NOT_NULL(events);
  XPUD_NOT_NULL(destination);
  return Guard([&]() -> ze_result_t {
    Resolved<Event> resolved;
    const ze_result_t result = resolved.Resolve(list.driver(), count, events);
    if (result != ZE_RESULT_SUCCESS) return result;
    return WithSync(list, signal, num_waits, waits, [&](const Sync& sync) {
      return list.AppendQueryTimestamps(resolved.objects(), destination, offsets, sync);
    });
  });
}

ze_result_t AppendMemoryPrefetch(ze_command_list_handle_t handle, const void* address, size_t) {
  XPUD_FIND(CommandList, list, handle);
  XPUD_NOT_NULL(address);
  static_cast<void>(list);  // a hint
  return ZE_RESULT_SUCCESS;
}

ze_result_t AppendMemAdvise(ze_command_list_handle_t handle, ze_device_handle_t device_handle,
                            const void* address, size_t, ze_memory_advice_t) {
  XPUD_FIND(CommandList, list, handle);
  XPUD_FIND(Device, device, device_handle);
  XPUD_NOT_NULL(address);
  return list.driver() == device.driver() ? ZE_RESULT_SUCCESS : ZE_RESULT_ERROR_INVALID_ARGUMENT;
}

}  // namespace

void PutAppends(const TableWriter& put, ze_command_list_dditable_t& table) {
  put.Put(table.pfnAppendWriteGlobalTimestamp, AppendWriteGlobalTimestamp);
  put.Put(table.pfnAppendBarrier, AppendBarrier);
  put.Put(table.pfnAppendMemoryRangesBarrier, AppendMemoryRangesBarrier);
  put.Put(table.pfnAppendMemoryCopy, AppendMemoryCopy);
  put.Put(table.pfnAppendMemoryFill, AppendMemoryFill);
  put.Put(table.pfnAppendMemoryCopyRegion, AppendMemoryCopyRegion);
  put.Put(table.pfnAppendMemoryCopyFromContext, AppendMemoryCopyFromContext);
  put.PutUnsupported(ZE_API_VERSION_1_0, table.pfnAppendImageCopy, table.pfnAppendImageCopyRegion,
                     table.pfnAppendImageCopyToMemory, table.pfnAppendImageCopyFromMemory);
  put.Put(table.pfnAppendMemoryPrefetch, AppendMemoryPrefetch);
  put.Put(table.pfnAppendMemAdvise, AppendMemAdvise);
  put.Put(table.pfnAppendSignalEvent, AppendSignalEvent);
  put.Put(table.pfnAppendWaitOnEvents, AppendWaitOnEvents);
  put.Put(table.pfnAppendEventReset, AppendEventReset);
  put.Put(table.pfnAppendQueryKernelTimestamps, AppendQueryKernelTimestamps);
  put.Put(table.pfnAppendLaunchKernel, AppendLaunchKernel);
  put.Put(table.pfnAppendLaunchCooperativeKernel, AppendLaunchCooperative);
  put.Put(table.pfnAppendLaunchKernelIndirect, AppendLaunchIndirect);
  put.Put(table.pfnAppendLaunchMultipleKernelsIndirect, AppendLaunchMultiple);
  put.PutUnsupported(ZE_API_VERSION_1_3, table.pfnAppendImageCopyToMemoryExt,
                     table.pfnAppendImageCopyFromMemoryExt);
}

}  // namespace xpud::drivers
