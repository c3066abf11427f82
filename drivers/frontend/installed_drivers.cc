#include "drivers/frontend/installed_drivers.h"

#include <string>
#include <vector>

#include "drivers/frontend/entry.h"
#include "drivers/frontend/handle_table.h"

namespace xpud::drivers {
namespace {

struct Installation {
  ze_result_t result = ZE_RESULT_SUCCESS;
  std::vector<Driver*> drivers;
  std::string report;
};

// A driver owns its devices, so the handle table stores pointers that it does not delete.
bool GiveHandles(std::unique_ptr<Driver> driver, std::vector<Driver*>& installed) {
  installed.push_back(driver.get());
  for (Device* device : driver->Devices()) {
    if (HandleTable::Add(std::unique_ptr<Device>(device)) == nullptr) return false;
  }
  return HandleTable::Add(std::move(driver)) != nullptr;
}

Installation Install() {
  Installation installation;
  installation.result = Guard([&]() -> ze_result_t {
    XPUD_REQUIRE(HandleTable::Start(), ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY);
    for (auto& driver : CreateDrivers(installation.report)) {
      if (!GiveHandles(std::move(driver), installation.drivers)) return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    return installation.drivers.empty() ? ZE_RESULT_ERROR_UNINITIALIZED : ZE_RESULT_SUCCESS;
  });
  if (installation.result != ZE_RESULT_SUCCESS) installation.drivers.clear();
  return installation;
}

Installation& TheInstallation() {
  static Installation& installation = *new Installation(Install());
  return installation;
}

bool installed = false;

}  // namespace

ze_result_t InstallDrivers(ze_init_flags_t flags) {
  // VPU_ONLY alone requests devices that we do not have.
  constexpr ze_init_flags_t kKnown = ZE_INIT_FLAG_GPU_ONLY | ZE_INIT_FLAG_VPU_ONLY;
  XPUD_REQUIRE((flags & ~kKnown) == 0, ZE_RESULT_ERROR_INVALID_ENUMERATION);
  XPUD_REQUIRE(flags != ZE_INIT_FLAG_VPU_ONLY, ZE_RESULT_ERROR_UNINITIALIZED);
  const ze_result_t result = TheInstallation().result;
  __atomic_store_n(&installed, result == ZE_RESULT_SUCCESS, __ATOMIC_RELEASE);
  return result;
}

std::span<Driver* const> InstalledDrivers() {
  if (!__atomic_load_n(&installed, __ATOMIC_ACQUIRE)) return {};
  return TheInstallation().drivers;
}

const char* LoadReport() { return TheInstallation().report.c_str(); }

}  // namespace xpud::drivers
