// Entry points zeInit and zeDriver*.
#include <level_zero/ze_ddi.h>

#include <cstring>

#include "drivers/frontend/entry.h"
#include "drivers/frontend/extensions.h"
#include "drivers/frontend/installed_drivers.h"
#include "drivers/frontend/table.h"

namespace xpud::drivers {
namespace {

ze_result_t Init(ze_init_flags_t flags) { return InstallDrivers(flags); }

ze_result_t Get(uint32_t* count, ze_driver_handle_t* drivers) {
  XPUD_NOT_NULL(count);
  return Answer(InstalledDrivers(), count, drivers, [](ze_driver_handle_t& out, Driver* driver) {
    out = static_cast<ze_driver_handle_t>(driver->handle());
  });
}

ze_result_t GetApiVersion(ze_driver_handle_t handle, ze_api_version_t* version) {
  XPUD_FIND(Driver, driver, handle);
  XPUD_NOT_NULL(version);
  *version = driver.HasExtensions() ? ZE_API_VERSION_CURRENT : ZE_API_VERSION_1_3;
  return ZE_RESULT_SUCCESS;
}

ze_result_t GetProperties(ze_driver_handle_t handle, ze_driver_properties_t* properties) {
  XPUD_FIND(Driver, driver, handle);
  XPUD_NOT_NULL(properties);
  driver.GetProperties(*properties);
  return ZE_RESULT_SUCCESS;
}

ze_result_t GetIpcProperties(ze_driver_handle_t handle, ze_driver_ipc_properties_t* properties) {
  XPUD_FIND(Driver, driver, handle);
  XPUD_NOT_NULL(properties);
  driver.GetIpcProperties(*properties);
  return ZE_RESULT_SUCCESS;
}

ze_result_t GetExtensionProperties(ze_driver_handle_t handle, uint32_t* count,
                                   ze_driver_extension_properties_t* out) {
  XPUD_FIND(Driver, driver, handle);
  XPUD_NOT_NULL(count);
  return Answer(Extensions(driver), count, out,
                [](ze_driver_extension_properties_t& to, const Extension& extension) {
                  std::strncpy(to.name, extension.name, sizeof(to.name) - 1);
                  to.name[sizeof(to.name) - 1] = '\0';
                  to.version = extension.version;
                });
}

ze_result_t GetExtensionFunctionAddress(ze_driver_handle_t handle, const char* name, void** address) {
  XPUD_FIND(Driver, driver, handle);
  XPUD_NOT_NULL(name);
  XPUD_NOT_NULL(address);
  *address = FindExtensionFunction(driver, name);
  if (*address == nullptr && driver.HasExtensions()) *address = driver.FindExtensionFunction(name);
  return *address == nullptr ? ZE_RESULT_ERROR_INVALID_ARGUMENT : ZE_RESULT_SUCCESS;
}

}  // namespace
}  // namespace xpud::drivers

using namespace xpud::drivers;

XPUD_DDI_TABLE(zeGetGlobalProcAddrTable, ze_global_dditable_t) { put.Put(table.pfnInit, Init); }

XPUD_DDI_TABLE(zeGetDriverProcAddrTable, ze_driver_dditable_t) {
  put.Put(table.pfnGet, Get);
  put.Put(table.pfnGetApiVersion, GetApiVersion);
  put.Put(table.pfnGetProperties, GetProperties);
  put.Put(table.pfnGetIpcProperties, GetIpcProperties);
  put.Put(table.pfnGetExtensionProperties, GetExtensionProperties);
  put.Put(table.pfnGetExtensionFunctionAddress, GetExtensionFunctionAddress, ZE_API_VERSION_1_1);
}
