// The drivers of this process: created by the first zeInit, never destroyed. Any thread.
#pragma once

#include <level_zero/ze_api.h>

#include <memory>
#include <span>

#include "drivers/frontend/driver.h"

namespace xpud::drivers {

// Creates the drivers and gives them and their devices handles. Idempotent; the loader calls zeInit several
// times.
ze_result_t InstallDrivers(ze_init_flags_t flags);

// Empty before InstallDrivers succeeded.
std::span<Driver* const> InstalledDrivers();

// A line for each back end that found no device, saying why; empty when all found one.
const char* LoadReport();

}  // namespace xpud::drivers
