// The drivers of this process: created by the first zeInit, never destroyed. Thread-safe.
#pragma once

#include <level_zero/ze_api.h>

#include <memory>
#include <span>

#include "drivers/frontend/driver.h"

namespace xpud::drivers {

// Creates the drivers, and handles for them and their devices. Idempotent, because the loader calls zeInit
// several times.
ze_result_t InstallDrivers(ze_init_flags_t flags);

// Empty before InstallDrivers has succeeded.
std::span<Driver* const> InstalledDrivers();

// One line for each back end that found no device, with the reason; "" if all found one.
const char* LoadReport();

}  // namespace xpud::drivers
