// libze_inject.so: a Level Zero driver that passes every call on to libze_xpud.so, except the one that the
// plan selects, which fails. Getters of other tables are found in libze_xpud.so, on which this library
// depends.
#include <dlfcn.h>
#include <fcntl.h>
#include <level_zero/ze_ddi.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "proto/base/ze_ext.h"
#include "tests/inject/plan.h"

namespace xpud::inject {
namespace {

Plan& ThePlan() {
  static Plan* const plan = [] {
    const char* const path = std::getenv(kPlanVariable);
    const int fd = path == nullptr ? -1 : open(path, O_RDWR | O_CLOEXEC);
    void* const mapped = mmap(nullptr, sizeof(Plan), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (mapped == MAP_FAILED) {
      std::fprintf(stderr, "libze_inject.so: %s names no plan\n", kPlanVariable);
      std::abort();
    }
    close(fd);
    return static_cast<Plan*>(mapped);
  }();
  return *plan;
}

bool ConcernsMemory(std::string_view name) {
  return name.starts_with("zeMem") || name.starts_with("zePhysicalMem") || name.starts_with("zeVirtualMem");
}

// Returns the result to give instead of making the call; SUCCESS: make the call.
ze_result_t ResultOf(const char* name) {
  Plan& plan = ThePlan();
  // Read once, and `only` after it: the test writes it while no call is to fail.
  const uint64_t fails = plan.fails;
  const bool is_other = fails != 0 && plan.only[0] != '\0' && plan.only != std::string_view(name);
  const bool counts = !is_other && (plan.memory == 0 || ConcernsMemory(name));
  const uint64_t number = counts ? plan.calls.fetch_add(1) + 1 : 0;
  const auto result = static_cast<ze_result_t>(plan.result.load());
  if (plan.failed_in == static_cast<uint32_t>(getpid())) return plan.sticks != 0 ? result : ZE_RESULT_SUCCESS;
  if (plan.failed_in != 0 || number == 0 || number != fails) return ZE_RESULT_SUCCESS;
  std::snprintf(plan.failed_call, sizeof(plan.failed_call), "%s", name);
  plan.failed_in = static_cast<uint32_t>(getpid());
  return result;
}

// Calls that release a handle do so even if they report a failure: the handle is invalid afterwards.
bool GivesBack(std::string_view name) {
  return name.find("Destroy") != name.npos || name.find("Free") != name.npos ||
         name.find("Release") != name.npos;
}

// Wraps the function in `slot` with the check whether it fails. `id` is unique for each slot.
template <int id, typename... Arguments>
void Wrap(const char* name, ze_result_t(ZE_APICALL*& slot)(Arguments...)) {
  static const char* const kName = name;
  static const auto kOriginal = slot;
  if (slot == nullptr) return;
  slot = [](Arguments... arguments) -> ze_result_t {
    const ze_result_t result = ResultOf(kName);
    if (result == ZE_RESULT_SUCCESS) return kOriginal(arguments...);
    if (GivesBack(kName)) kOriginal(arguments...);
    return result;
  };
}

// Wraps functions that are found by name.
template <int id, typename Function>
bool WrapNamed(const char* wanted, const char* name, void** address) {
  if (std::strcmp(wanted, name) != 0) return false;
  auto function = reinterpret_cast<Function>(*address);
  Wrap<id>(name, function);
  *address = reinterpret_cast<void*>(function);
  return true;
}
#define XPUD_NAMED(name, type) WrapNamed<__COUNTER__, type>(wanted, name, address)

ze_pfnDriverGetExtensionFunctionAddress_t find_function = nullptr;

ze_result_t ZE_APICALL FindFunction(ze_driver_handle_t driver, const char* wanted, void** address) {
  if (const ze_result_t failed = ResultOf("zeDriverGetExtensionFunctionAddress"); failed != ZE_RESULT_SUCCESS)
    return failed;
  if (const ze_result_t found = find_function(driver, wanted, address); found != ZE_RESULT_SUCCESS)
    return found;
  (void)(XPUD_NAMED("zeCommandListAppendLaunchKernelWithArguments",
                    xpud_pfnAppendLaunchKernelWithArguments_t) ||
         XPUD_NAMED("zeCommandListHostSynchronize", xpud_pfnCommandListHostSynchronize_t) ||
         XPUD_NAMED("xpudCommandListAppendWriteValue64", xpud_pfnAppendWriteValue64_t) ||
         XPUD_NAMED("xpudDeviceGetPeakRates", xpud_pfnDeviceGetPeakRates_t) ||
         XPUD_NAMED("xpudModuleCreate", xpud_pfnModuleCreate_t) ||
         XPUD_NAMED("xpudCommandListCountCaptured", xpud_pfnCountCaptured_t) ||
         XPUD_NAMED("xpudDriverStartTrace", xpud_pfnStartTrace_t) ||
         XPUD_NAMED("xpudDriverFlushTrace", xpud_pfnFlushTrace_t) ||
         XPUD_NAMED("xpudDriverStopTrace", xpud_pfnStopTrace_t) ||
         XPUD_NAMED("zexDriverImportExternalPointer", xpud_pfnImportExternalPointer_t) ||
         XPUD_NAMED("zexDriverReleaseImportedPointer", xpud_pfnReleaseImportedPointer_t) ||
         XPUD_NAMED("zeCommandListBeginGraphCaptureExp", xpud_pfnBeginGraphCapture_t) ||
         XPUD_NAMED("zeCommandListEndGraphCaptureExp", xpud_pfnEndGraphCapture_t) ||
         XPUD_NAMED("zeCommandListInstantiateGraphExp", xpud_pfnInstantiateGraph_t) ||
         XPUD_NAMED("zeCommandListAppendGraphExp", xpud_pfnAppendGraph_t) ||
         XPUD_NAMED("zeGraphDestroyExp", xpud_pfnGraphDestroy_t) ||
         XPUD_NAMED("zeExecutableGraphDestroyExp", xpud_pfnExecutableGraphDestroy_t));
  return ZE_RESULT_SUCCESS;
}

// Fills the table from libze_xpud.so.
template <typename Table>
ze_result_t Original(const char* getter, ze_api_version_t version, Table* table) {
  using Getter = ze_result_t(ZE_APICALL*)(ze_api_version_t, Table*);
  const auto original = reinterpret_cast<Getter>(dlsym(RTLD_NEXT, getter));
  return original == nullptr ? ZE_RESULT_ERROR_UNINITIALIZED : original(version, table);
}

}  // namespace
}  // namespace xpud::inject

#define XPUD_INJECT_TABLE(getter, table_type)                                                               \
  static void WrapAll_##getter(table_type& table);                                                          \
  extern "C" __attribute__((visibility("default"))) ze_result_t ZE_APICALL getter(ze_api_version_t version, \
                                                                                  table_type* table) {      \
    const ze_result_t result = xpud::inject::Original(#getter, version, table);                             \
    if (result == ZE_RESULT_SUCCESS) WrapAll_##getter(*table);                                              \
    return result;                                                                                          \
  }                                                                                                         \
  static void WrapAll_##getter(table_type& table)
#define XPUD_WRAP(name, slot) xpud::inject::Wrap<__COUNTER__>(#name, table.slot)

XPUD_INJECT_TABLE(zeGetGlobalProcAddrTable, ze_global_dditable_t) { XPUD_WRAP(zeInit, pfnInit); }
XPUD_INJECT_TABLE(zeGetDriverProcAddrTable, ze_driver_dditable_t) {
  XPUD_WRAP(zeDriverGet, pfnGet);
  XPUD_WRAP(zeDriverGetExtensionProperties, pfnGetExtensionProperties);
  xpud::inject::find_function = table.pfnGetExtensionFunctionAddress;
  table.pfnGetExtensionFunctionAddress = xpud::inject::FindFunction;
}
XPUD_INJECT_TABLE(zeGetDeviceProcAddrTable, ze_device_dditable_t) {
  XPUD_WRAP(zeDeviceGet, pfnGet);
  XPUD_WRAP(zeDeviceGetProperties, pfnGetProperties);
  XPUD_WRAP(zeDeviceGetComputeProperties, pfnGetComputeProperties);
  XPUD_WRAP(zeDeviceGetModuleProperties, pfnGetModuleProperties);
  XPUD_WRAP(zeDeviceGetMemoryProperties, pfnGetMemoryProperties);
  XPUD_WRAP(zeDeviceGetExternalMemoryProperties, pfnGetExternalMemoryProperties);
  XPUD_WRAP(zeDevicePciGetPropertiesExt, pfnPciGetPropertiesExt);
  XPUD_WRAP(zeDeviceCanAccessPeer, pfnCanAccessPeer);
}
XPUD_INJECT_TABLE(zeGetContextProcAddrTable, ze_context_dditable_t) {
  XPUD_WRAP(zeContextCreate, pfnCreate);
  XPUD_WRAP(zeContextDestroy, pfnDestroy);
}
XPUD_INJECT_TABLE(zeGetCommandListProcAddrTable, ze_command_list_dditable_t) {
  XPUD_WRAP(zeCommandListCreateImmediate, pfnCreateImmediate);
  XPUD_WRAP(zeCommandListDestroy, pfnDestroy);
  XPUD_WRAP(zeCommandListAppendBarrier, pfnAppendBarrier);
  XPUD_WRAP(zeCommandListAppendLaunchKernel, pfnAppendLaunchKernel);
  XPUD_WRAP(zeCommandListAppendMemoryCopy, pfnAppendMemoryCopy);
  XPUD_WRAP(zeCommandListAppendMemoryFill, pfnAppendMemoryFill);
  XPUD_WRAP(zeCommandListAppendWriteGlobalTimestamp, pfnAppendWriteGlobalTimestamp);
}
XPUD_INJECT_TABLE(zeGetMemProcAddrTable, ze_mem_dditable_t) {
  XPUD_WRAP(zeMemAllocDevice, pfnAllocDevice);
  XPUD_WRAP(zeMemAllocHost, pfnAllocHost);
  XPUD_WRAP(zeMemFree, pfnFree);
  XPUD_WRAP(zeMemGetAllocProperties, pfnGetAllocProperties);
}
XPUD_INJECT_TABLE(zeGetVirtualMemProcAddrTable, ze_virtual_mem_dditable_t) {
  XPUD_WRAP(zeVirtualMemReserve, pfnReserve);
  XPUD_WRAP(zeVirtualMemFree, pfnFree);
  XPUD_WRAP(zeVirtualMemQueryPageSize, pfnQueryPageSize);
  XPUD_WRAP(zeVirtualMemMap, pfnMap);
  XPUD_WRAP(zeVirtualMemUnmap, pfnUnmap);
  XPUD_WRAP(zeVirtualMemSetAccessAttribute, pfnSetAccessAttribute);
  XPUD_WRAP(zeVirtualMemGetAccessAttribute, pfnGetAccessAttribute);
}
XPUD_INJECT_TABLE(zeGetPhysicalMemProcAddrTable, ze_physical_mem_dditable_t) {
  XPUD_WRAP(zePhysicalMemCreate, pfnCreate);
  XPUD_WRAP(zePhysicalMemDestroy, pfnDestroy);
}
XPUD_INJECT_TABLE(zeGetModuleProcAddrTable, ze_module_dditable_t) {
  XPUD_WRAP(zeModuleDestroy, pfnDestroy);
  XPUD_WRAP(zeModuleGetNativeBinary, pfnGetNativeBinary);
}
XPUD_INJECT_TABLE(zeGetModuleBuildLogProcAddrTable, ze_module_build_log_dditable_t) {
  XPUD_WRAP(zeModuleBuildLogDestroy, pfnDestroy);
  XPUD_WRAP(zeModuleBuildLogGetString, pfnGetString);
}
XPUD_INJECT_TABLE(zeGetKernelProcAddrTable, ze_kernel_dditable_t) {
  XPUD_WRAP(zeKernelCreate, pfnCreate);
  XPUD_WRAP(zeKernelDestroy, pfnDestroy);
  XPUD_WRAP(zeKernelSetGroupSize, pfnSetGroupSize);
  XPUD_WRAP(zeKernelSetArgumentValue, pfnSetArgumentValue);
  XPUD_WRAP(zeKernelSetIndirectAccess, pfnSetIndirectAccess);
}
XPUD_INJECT_TABLE(zeGetEventPoolProcAddrTable, ze_event_pool_dditable_t) {
  XPUD_WRAP(zeEventPoolCreate, pfnCreate);
  XPUD_WRAP(zeEventPoolDestroy, pfnDestroy);
}
XPUD_INJECT_TABLE(zeGetEventProcAddrTable, ze_event_dditable_t) {
  XPUD_WRAP(zeEventCreate, pfnCreate);
  XPUD_WRAP(zeEventDestroy, pfnDestroy);
  XPUD_WRAP(zeEventHostSynchronize, pfnHostSynchronize);
  XPUD_WRAP(zeEventHostReset, pfnHostReset);
}
