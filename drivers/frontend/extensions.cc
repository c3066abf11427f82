#include "drivers/frontend/extensions.h"

#include <level_zero/ze_api.h>

#include <cstring>
#include <string_view>

#include "drivers/frontend/driver.h"
#include "drivers/frontend/entry.h"
#include "drivers/frontend/graph_entry.h"
#include "drivers/frontend/installed_drivers.h"
#include "drivers/frontend/module.h"
#include "drivers/frontend/virtual_memory_entry.h"
#include "proto/base/ze_ext.h"

namespace xpud::drivers {
namespace {

ze_result_t AppendLaunchKernelWithArguments(ze_command_list_handle_t list_handle,
                                            ze_kernel_handle_t kernel_handle,
                                            const ze_group_count_t group_counts,
                                            const xpud_group_size_t group_sizes, const void* const* arguments,
                                            const void* next, ze_event_handle_t signal, uint32_t num_waits,
                                            ze_event_handle_t* waits) {
  XPUD_FIND(CommandList, list, list_handle);
  XPUD_FIND(Kernel, kernel, kernel_handle);
  XPUD_REQUIRE(kernel.driver() == list.driver(), ZE_RESULT_ERROR_INVALID_ARGUMENT);
  const auto* const part = static_cast<const xpud_launch_part_desc_t*>(next);
  XPUD_REQUIRE(part == nullptr || part->stype == XPUD_STRUCTURE_TYPE_LAUNCH_PART_DESC,
               ZE_RESULT_ERROR_INVALID_ENUMERATION);
  const LaunchShape shape{group_counts, &group_sizes, arguments, part};
  return WithSync(list, signal, num_waits, waits,
                  [&](const Sync& sync) { return list.AppendLaunch(kernel, shape, sync); });
}

ze_result_t CommandListHostSynchronize(ze_command_list_handle_t handle, uint64_t timeout_ns) {
  XPUD_FIND(CommandList, list, handle);
  return list.HostSynchronize(timeout_ns);
}

ze_result_t AppendWriteValue64(ze_command_list_handle_t handle, uint64_t* address, uint64_t value) {
  XPUD_FIND(CommandList, list, handle);
  XPUD_NOT_NULL(address);
  XPUD_REQUIRE(reinterpret_cast<uintptr_t>(address) % sizeof(uint64_t) == 0,
               ZE_RESULT_ERROR_UNSUPPORTED_ALIGNMENT);
  return Guard([&] { return list.AppendWriteValue64(address, value); });
}

ze_result_t DriverGetBackEnd(ze_driver_handle_t handle, const xpud_back_end_t** back_end) {
  XPUD_FIND(Driver, driver, handle);
  XPUD_NOT_NULL(back_end);
  *back_end = &driver.BackEnd();
  return ZE_RESULT_SUCCESS;
}

ze_result_t DeviceGetPeakRates(ze_device_handle_t handle, xpud_peak_rates_t* rates) {
  XPUD_FIND(Device, device, handle);
  XPUD_NOT_NULL(rates);
  *rates = device.PeakRates();
  return ZE_RESULT_SUCCESS;
}

ze_result_t GetLoadReport(const char** report) {
  XPUD_NOT_NULL(report);
  *report = LoadReport();
  return ZE_RESULT_SUCCESS;
}

// The first one needs devices on PCI; the last one is ours.
constexpr Extension kExtensions[] = {
    {ZE_PCI_PROPERTIES_EXT_NAME, ZE_PCI_PROPERTIES_EXT_VERSION_CURRENT},
    {ZE_MEMORY_FREE_POLICIES_EXT_NAME, ZE_MEMORY_FREE_POLICIES_EXT_VERSION_CURRENT},
    {ZE_EVENT_QUERY_TIMESTAMPS_EXP_NAME, ZE_EVENT_QUERY_TIMESTAMPS_EXP_VERSION_CURRENT},
    {ZE_RELAXED_ALLOCATION_LIMITS_EXP_NAME, ZE_RELAXED_ALLOCATION_LIMITS_EXP_VERSION_CURRENT},
    {"XPUD_extension_command_list", 2},  // the functions below, and XPUD_ZE_COMMAND_QUEUE_FLAG_IN_ORDER
};

const NamedFunction kFunctions[] = {
    {"zeCommandListAppendLaunchKernelWithArguments",
     reinterpret_cast<void*>(&AppendLaunchKernelWithArguments)},
    {"zeCommandListHostSynchronize", reinterpret_cast<void*>(&CommandListHostSynchronize)},
    {"xpudCommandListAppendWriteValue64", reinterpret_cast<void*>(&AppendWriteValue64)},
    {"zeCommandListBeginGraphCaptureExp", reinterpret_cast<void*>(&BeginGraphCapture)},
    {"zeCommandListEndGraphCaptureExp", reinterpret_cast<void*>(&EndGraphCapture)},
    {"zeCommandListInstantiateGraphExp", reinterpret_cast<void*>(&InstantiateGraph)},
    {"zeCommandListAppendGraphExp", reinterpret_cast<void*>(&AppendGraph)},
    {"zeGraphDestroyExp", reinterpret_cast<void*>(&GraphDestroy)},
    {"zeExecutableGraphDestroyExp", reinterpret_cast<void*>(&ExecutableGraphDestroy)},
    {"xpudCommandListCountCaptured", reinterpret_cast<void*>(&CountCaptured)},
    {"zePhysicalMemGetProperties", reinterpret_cast<void*>(&PhysicalMemGetProperties)},
    {"xpudModuleCreate", reinterpret_cast<void*>(&ModuleCreate)},
    {"xpudDriverGetBackEnd", reinterpret_cast<void*>(&DriverGetBackEnd)},
    {"xpudDeviceGetPeakRates", reinterpret_cast<void*>(&DeviceGetPeakRates)},
    {"xpudGetLoadReport", reinterpret_cast<void*>(&GetLoadReport)},
};

// Checks the contract of proto/base/ze_ext.h.
static_assert(
    std::is_same_v<decltype(&AppendLaunchKernelWithArguments), xpud_pfnAppendLaunchKernelWithArguments_t>);
static_assert(std::is_same_v<decltype(&CommandListHostSynchronize), xpud_pfnCommandListHostSynchronize_t>);
static_assert(std::is_same_v<decltype(&AppendWriteValue64), xpud_pfnAppendWriteValue64_t>);
static_assert(std::is_same_v<decltype(&BeginGraphCapture), xpud_pfnBeginGraphCapture_t>);
static_assert(std::is_same_v<decltype(&EndGraphCapture), xpud_pfnEndGraphCapture_t>);
static_assert(std::is_same_v<decltype(&CountCaptured), xpud_pfnCountCaptured_t>);
static_assert(std::is_same_v<decltype(&InstantiateGraph), xpud_pfnInstantiateGraph_t>);
static_assert(std::is_same_v<decltype(&AppendGraph), xpud_pfnAppendGraph_t>);
static_assert(std::is_same_v<decltype(&GraphDestroy), xpud_pfnGraphDestroy_t>);
static_assert(std::is_same_v<decltype(&ExecutableGraphDestroy), xpud_pfnExecutableGraphDestroy_t>);
static_assert(std::is_same_v<decltype(&PhysicalMemGetProperties), xpud_pfnPhysicalMemGetProperties_t>);
static_assert(std::is_same_v<decltype(&ModuleCreate), xpud_pfnModuleCreate_t>);
static_assert(std::is_same_v<decltype(&DriverGetBackEnd), xpud_pfnDriverGetBackEnd_t>);
static_assert(std::is_same_v<decltype(&DeviceGetPeakRates), xpud_pfnDeviceGetPeakRates_t>);
static_assert(std::is_same_v<decltype(&GetLoadReport), xpud_pfnGetLoadReport_t>);

}  // namespace

std::span<const Extension> Extensions(const Driver& driver) {
  const std::span<const Extension> all = std::span(kExtensions).subspan(driver.HasPciProperties() ? 0 : 1);
  return driver.HasExtensions() ? all : all.first(all.size() - 1);
}

void* Find(std::span<const NamedFunction> functions, const char* name) {
  for (const NamedFunction& function : functions)
    if (std::strcmp(function.name, name) == 0) return function.address;
  return nullptr;
}

void* FindExtensionFunction(const Driver& driver, const char* name) {
  constexpr std::string_view kAlways = "xpudDriverGetBackEnd";
  return driver.HasExtensions() || name == kAlways ? Find(kFunctions, name) : nullptr;
}

}  // namespace xpud::drivers
